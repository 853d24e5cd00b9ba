"""Runs the cases of a kit (`tw kit make`) on a machine with a GPU: Python 3.9 or newer alone suffices.

This folder is copied into each kit as it is, so it uses nothing but Python's standard library.
"""
