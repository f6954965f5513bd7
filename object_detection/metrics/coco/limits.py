"""How many detections the metrics of COCO and LVIS count, and how their names say it."""

# Of an image and a class; of LVIS, of an image.
BOXES_AND_MASKS, KEYPOINTS, LVIS = 100, 20, 300


def named(metric: str, limit: int, published: int) -> str:
    """Returns the name of a metric with its limit, unless that is the published one."""
    return metric if limit == published else f'{metric}@{limit}'
