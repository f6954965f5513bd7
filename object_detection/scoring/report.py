"""The metrics of files as tables: the lines of COCO's, and a row for each category on demand."""

import math
import re
from collections.abc import Iterator, Mapping

from object_detection.metrics.coco import keypoints, limits
from object_detection.system import texts

_SUMMARY = re.compile(
    r'(?P<kind>Precision/mAP|Recall/AR)(@(?P<maximum>\d+))?(@(?P<iou>\.\d+)IOU)?'
    r'( \((?P<area>\w+)\))?'
)
_KINDS = {'Precision/mAP': 'Average Precision  (AP)', 'Recall/AR': 'Average Recall     (AR)'}
_COCO_GROUPS = {
    'DetectionBoxes': limits.BOXES_AND_MASKS,
    'DetectionMasks': limits.BOXES_AND_MASKS,
    'Keypoints': limits.KEYPOINTS,
}
_CATEGORY_COLUMNS = (
    re.compile(r'(?P<group>[^_]+)_(?P<metric>.+) ByCategory/(?P<name>.+)'),
    re.compile(r'(?P<group>[^_]+)_PerformanceByCategory/(?P<metric>[^/]+)/(?P<name>.+)'),
)


def lines(metrics: Mapping[str, float], *, per_category: bool = False) -> Iterator[str]:
    """Yields the lines of the tables.

    Args:
      metrics: name -> value, as evaluators return them.
      per_category: whether there is a table with a row for each category, too.
    """
    groups, categories = _grouped(metrics)
    for index, (group, values) in enumerate(groups.items()):
        yield from ([''] if index else [])
        yield group
        for name, value in values.items():
            yield f' {_line(group, name)} = {_shown(value, 3)}'
    if per_category:
        for group, rows in categories.items():
            yield ''
            yield from _category_table(group, rows)


def _grouped(
    metrics: Mapping[str, float],
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, dict[str, float]]]]:
    """Returns group -> name -> value, and group -> category -> name -> value."""
    groups: dict[str, dict[str, float]] = {}
    categories: dict[str, dict[str, dict[str, float]]] = {}
    for full_name, value in metrics.items():
        found = next(filter(None, (each.fullmatch(full_name) for each in _CATEGORY_COLUMNS)), None)
        if found is None:
            group, separator, name = full_name.partition('_')
            if not separator:
                group, name = full_name, full_name
            groups.setdefault(group, {})[name] = value
        elif found['group'] == 'Keypoints':
            # They are of one class; its other names for numbers of recall are left out.
            own = keypoints.ALIASES.get(found['metric'])
            if not own or full_name.replace(found['metric'], own) not in metrics:
                group = f'Keypoints of {found["name"]}'
                groups.setdefault(group, {})[found['metric']] = value
        elif found['metric'].partition('@')[0] != 'mAP':
            rows = categories.setdefault(found['group'], {})
            rows.setdefault(found['name'], {})[found['metric']] = value
    return groups, categories


def _line(group: str, name: str) -> str:
    """Returns the name of a metric, one of COCO's as in its table."""
    found = _SUMMARY.fullmatch(name)
    maximum = _COCO_GROUPS.get(group.split()[0])
    if not found or maximum is None:
        return name
    iou = f'{float(found["iou"]):.2f}' if found['iou'] else '0.50:0.95'
    area, count = found['area'] or 'all', found['maximum'] or maximum
    return f'{_KINDS[found["kind"]]} @[ IoU={iou:<9} | area={area:>6} | maxDets={count:>3} ]'


def _category_table(group: str, rows: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    names = list(dict.fromkeys(name for values in rows.values() for name in values))
    cells = [
        [row, *(_shown(values.get(name, math.nan), 3) for name in names)]
        for row, values in rows.items()
    ]
    yield from texts.aligned([[group, *map(_short, names)], *cells], left=1, least=6)


def _short(name: str) -> str:
    """Returns the head of a column: 'Precision/mAP@.50IOU' -> 'AP50'."""
    found = _SUMMARY.fullmatch('Precision/mAP@.50IOU' if name == 'AP@0.5IOU' else name)
    if not found:
        return name
    if found['kind'] == 'Recall/AR' and not found['area']:
        return f'AR{found["maximum"]}'
    iou, area = found['iou'] or '', found['area'] or ''
    return found['kind'][-2:] + iou[1:] + area[:1]


def _shown(value: float, digits: int) -> str:
    is_defined = math.isfinite(value) and value >= 0
    return f'{value:.{digits}f}' if is_defined else '-'
