"""Answers each line of standard input with the metrics of the `lvis` package."""

import json
import logging
import sys

import numpy as np

# The package is older than NumPy 1.24, which removed the name.
np.float = float
from lvis import LVIS, LVISEval, LVISResults  # noqa: E402

logging.disable(logging.CRITICAL)
for line in sys.stdin:
    problem = json.loads(line)
    groundtruth = LVIS.__new__(LVIS)
    groundtruth.logger = logging.getLogger()
    groundtruth.dataset = problem['groundtruth']
    groundtruth._create_index()
    engine = LVISEval(groundtruth, LVISResults(groundtruth, problem['results']))
    engine.run()
    print(json.dumps({name: float(each) for name, each in engine.get_results().items()}))
    sys.stdout.flush()
