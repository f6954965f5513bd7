"""Seconds that a traced function spends in each part of a detector, by TensorFlow's profiler."""

import collections
import glob
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping

# The layers of a model, and the scopes of the functions of a detector (`tracing.named`), in the
# order of the model -> the name of this part in a picture. Several may share one.
PARTS = {
    'preprocess': 'preprocessing',
    'backbone': 'backbone',
    'fpn': 'pyramid',
    'rpn_head': 'RPN head',
    'proposals': 'proposals',
    'sampling': 'proposals',
    'roi_align': 'crops',
    'box_classifier': 'box head',
    'box_head': 'box head',
    'box_predictor': 'box head',
    'mask_roi_align': 'crops',
    'mask_head': 'mask head',
    'keypoint_roi_align': 'crops',
    'keypoint_head': 'keypoint head',
    'detections': 'post-processing',
    'postprocess': 'post-processing',
    'loss': 'losses',
}
# Those that call the others.
_OUTER = ('postprocess', 'loss')
_OTHER = '(other)'
# How a profile calls a program of XLA, and what it is called here; its node is not known.
_XLA = 'CpuExecutable::ExecuteAsyncOnStream'
_SLOWEST = 3


def part_of(node: str) -> str:
    """The part that a node belongs to by its name; of gradients, with 'gradient' behind it."""
    words = [re.sub(r'(_\d+)+$', '', word) for word in node.split('/')]
    if _XLA in node:
        return '(compiled by XLA)'
    known = [word for word in words if word in PARTS]
    # Functions are named inside each other, layers are not.
    inner = [word for word in known if word not in _OUTER] or known
    part = inner[0] if inner else _OTHER
    return f'{part} gradient' if 'gradient_tape' in words else part


def parts(run: Callable[[], object], by_operation: Mapping[str, int]) -> list[dict]:
    """Profiles one call.

    Args:
      run: calls the traced function.
      by_operation: floating point operations by node.

    Returns:
      Per part, slowest first: part; seconds, of all threads that run nodes (two may run at once,
      and each may use all cores); gigaflop; rate in GFLOP/s; slowest, its slowest nodes.
    """
    seconds = node_seconds(run)
    totals, flops = collections.Counter(), collections.Counter()
    nodes = collections.defaultdict(list)
    for name, time in seconds.items():
        part = part_of(name)
        totals[part] += time
        nodes[part].append((time, name))
    for name, count in by_operation.items():
        flops[part_of(name)] += count
    return [
        {
            'part': part,
            'seconds': time,
            'gigaflop': flops[part] / 1e9,
            'rate': flops[part] / 1e9 / time if time else 0.0,
            'slowest': ', '.join(
                f'{name} {spent:.3f}' for spent, name in sorted(nodes[part])[: -_SLOWEST - 1 : -1]
            ),
        }
        for part, time in totals.most_common()
    ]


def node_seconds(run: Callable[[], object]) -> dict[str, float]:
    """Profiles one call: seconds by 'name:Type' of the nodes, without those of nodes inside."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3, python_tracer_level=0)
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder, options=options):
            run()
        (path,) = glob.glob(f'{folder}/**/*.xplane.pb', recursive=True)
        with open(path, 'rb') as file:
            space = xplane_pb2.XSpace.FromString(file.read())
    seconds = collections.Counter()
    for plane in space.planes:
        names = {key: data.name for key, data in plane.event_metadata.items()}
        for line in plane.lines:
            events = [
                (event.offset_ps, event.duration_ps, names[event.metadata_id])
                for event in line.events
            ]
            for name, picoseconds in _own_time(events):
                seconds[name] += picoseconds / 1e12
    return dict(seconds)


def _own_time(events: list[tuple[int, int, str]]) -> Iterator[tuple[str, int]]:
    """(start, duration, name) of a thread -> (name, duration without nodes inside) of the nodes."""
    is_node = re.compile(rf'[\w./-]+:[A-Z_]\w*|{_XLA}').fullmatch
    nodes = sorted((e for e in events if is_node(e[2])), key=lambda e: (e[0], -e[1]))
    open_nodes: list[list] = []  # [end, name, own duration]
    for start, duration, name in nodes:
        while open_nodes and open_nodes[-1][0] <= start:
            _, ended, own = open_nodes.pop()
            yield ended, own
        if open_nodes:
            open_nodes[-1][2] -= duration
        open_nodes.append([start + duration, name, duration])
    for _, name, own in open_nodes:
        yield name, own
