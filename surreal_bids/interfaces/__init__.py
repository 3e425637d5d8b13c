"""Nipype interfaces: each loads files, calls one function of a layer below, and saves."""

import os

# Nipype asks a server for its newest version unless this is set before an interface is made.
os.environ.setdefault('NIPYPE_NO_ET', '1')
