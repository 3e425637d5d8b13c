"""`python -m surreal_bids`: the same as `surreal-bids`."""

import sys

from surreal_bids.cli.app import main

if __name__ == '__main__':
    sys.exit(main())
