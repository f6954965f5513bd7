"""Metrics in the log."""

from object_detection.training.evaluation import results


def _coco(kind: str) -> dict[str, float]:
    sizes = ('', ' (small)', ' (medium)', ' (large)')
    precision = {f'Detection{kind}_Precision/mAP{size}': 0.25 for size in sizes}
    return precision | {f'Detection{kind}_Recall/AR@100{size}': 0.5 for size in sizes}


def test_each_group_is_a_paragraph():
    metrics = _coco('Boxes') | {'Loss/total_loss': 1.5}
    assert results.table(metrics) == [
        'DetectionBoxes_Precision: mAP 0.2500  mAP (small) 0.2500  mAP (medium) 0.2500  '
        'mAP (large) 0.2500',
        'DetectionBoxes_Recall: AR@100 0.5000  AR@100 (small) 0.5000  AR@100 (medium) 0.5000',
        '    AR@100 (large) 0.5000',
        'Loss: total_loss 1.5000',
    ]


def test_long_paragraphs_are_broken_between_metrics():
    names = [f'class {index}' for index in range(20)]
    lines = results.table({f'ByCategory/{name}': 0.125 for name in names})
    assert max(map(len, lines)) <= 100
    assert ' '.join(lines).count('0.1250') == 20
    assert all(line.rstrip().endswith('0.1250') for line in lines)


def test_what_is_not_defined_is_explained():
    lines = results.table({'A/mAP (small)': -1.0, 'A/mAP': 0.5, 'Loss/total_loss': -1.0})
    assert lines == [
        'A: mAP (small) -  mAP 0.5000',
        'Loss: total_loss -1.0000',
        '-: not defined, as the data have no such object',
    ]
    assert len(results.table({'A/mAP': 0.5})) == 1
