import asyncio


async def test_computing_takes_no_time():
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(1)
    sum(range(10_000))
    await asyncio.sleep(1)
    assert loop.time() - began == 2
