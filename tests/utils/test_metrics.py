import math

import numpy as np
import pytest

from object_detection.errors import UserError
from object_detection.utils import metrics
from tests import goldens


def test_average_precision_equals_the_reference():
    case = goldens.load('evaluation', 'precision_recall')
    precision, recall = metrics.compute_precision_recall(
        case.inputs['scores'], case.inputs['labels'], case.params['num_gt']
    )
    np.testing.assert_allclose(precision, case.outputs['precision'], rtol=1e-12)
    np.testing.assert_allclose(recall, case.outputs['recall'], rtol=1e-12)
    average = metrics.compute_average_precision(precision, recall)
    np.testing.assert_allclose(average, case.outputs['ap'], rtol=1e-12)


def test_without_objects_there_is_no_precision():
    curve = metrics.compute_precision_recall(np.array([0.5]), np.array([False]), 0)
    assert curve == (None, None)
    assert math.isnan(metrics.compute_average_precision(*curve))


def test_cor_loc_equals_the_reference():
    case = goldens.load('evaluation', 'cor_loc')
    found = metrics.compute_cor_loc(case.inputs['num_gt_imgs'], case.inputs['correct'])
    np.testing.assert_allclose(found, case.outputs['corloc'], rtol=1e-12)


def test_arguments_must_fit():
    with pytest.raises(UserError, match='labels'):
        metrics.compute_precision_recall(np.zeros(2), np.zeros(1, bool), 3)
    with pytest.raises(AttributeError, match='tfod eval'):
        metrics.compute_recall_at_k  # noqa: B018
