"""Entry point of `python -m testbed`."""

import sys

from testbed import cli

if __name__ == "__main__":
    sys.exit(cli.main())
