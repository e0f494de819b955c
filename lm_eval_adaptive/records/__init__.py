"""Facts that cross a file or a room, as typed records with one writer and one reader each.

Imports the core's types and the errors, nothing else of this package.
"""
