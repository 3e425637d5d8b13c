#!/usr/bin/env python3
"""The BIDS App: `run.py BIDS_DIR OUTPUT_DIR {participant,group}...`."""

import sys

from surreal_bids.cli.app import main

if __name__ == '__main__':
    sys.exit(main())
