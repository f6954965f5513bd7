"""The work of commands as functions: `object_detection.train` and its kin run what `tfod` runs.

Options have the names of the flags, by which messages call them, too. Nothing here loads TensorFlow
before it is needed.
"""
