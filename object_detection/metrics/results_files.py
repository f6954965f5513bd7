"""Files of detections in the form of COCO's results (https://cocodataset.org/#format-results)."""

import json
import logging
import os
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from object_detection.system import files

_logger = logging.getLogger(__name__)


def paths(path: str, reader: str, readers: Sequence[str], metrics: Sequence[str]) -> dict[str, str]:
    """Returns the path of the file of each set of metrics.

    One file has the given name. Several have the names of the reader and of the set before the
    suffix, as far as there are several: results.json becomes results-val-coco_mask_metrics.json.

    Args:
      path: `eval_config.export_path`.
      reader: name of the reader whose detections are written.
      readers: names of all readers.
      metrics: names of the sets of metrics that write detections.
    """
    stem, suffix = os.path.splitext(path)
    if len(readers) > 1:
        # The name may have characters that divide folders.
        stem = f'{stem}-{urllib.parse.quote(reader, safe=" ")}'
    if len(metrics) == 1:
        return {metrics[0]: f'{stem}{suffix}'}
    return {name: f'{stem}-{urllib.parse.quote(name, safe=" ")}{suffix}' for name in metrics}


def write(path: str, reader: str, readers: Sequence[str], evaluators: Mapping[str, Any]) -> None:
    """Writes the detections of the evaluators that store them, those of COCO's kind.

    Args:
      path, reader, readers: as in `paths`.
      evaluators: name of a set of metrics -> its evaluator.

    Raises:
      OSError: if a file cannot be written.
    """
    storing = {name: each for name, each in evaluators.items() if hasattr(each, 'coco_results')}
    for name, target in paths(path, reader, readers, list(storing)).items():
        results = storing[name].coco_results()
        files.write_text(target, json.dumps(results))
        _logger.info('%d detections of %s are in %s', len(results), name, target)
