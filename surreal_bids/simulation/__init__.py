"""Data whose truth is known: tables of regional volumes and whole heads."""
