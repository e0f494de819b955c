"""A run: the contest of models on a task, the loop that asks, the journal, the result files.

Imports ``banks``, ``host`` and ``core``; knows neither the command line nor the page.
"""
