"""Nipype graphs: they only wire."""
