"""The statistics: response models, calibration, posterior, sampler, ranker, procedure.

This folder depends on NumPy and SciPy; pandas and pyarrow are imported inside the functions that
read or write files. It knows no harness: nothing here imports ``lm_eval``, torch or datasets.
"""
