"""Tests of this room have no network and find the toy models registered."""

from tests.support.offline import offline

__all__ = ["offline"]
