"""`python -m surreal_bids`: the same as `surreal-bids`, and `atlases`, which prepares atlases."""

import sys

from surreal_bids.cli import app, atlases

if __name__ == '__main__':
    main = atlases.main if sys.argv[1:2] == [atlases.COMMAND] else app.main
    sys.exit(main())
