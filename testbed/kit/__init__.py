"""What the demo, the tests and the benchmarks drive a testbed with."""
