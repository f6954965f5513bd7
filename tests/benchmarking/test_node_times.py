"""Seconds of nodes, and the parts of a detector that they belong to."""

from object_detection.benchmarking import node_times
from tests import rows


def test_own_time_of_nodes_leaves_out_what_runs_inside():
    events = [(0, 100, 'a/call:PartitionedCall'), (10, 30, 'b:MatMul'), (15, 5, 'not a node')]
    events += [(20, 10, 'c:Add'), (200, 7, 'b:MatMul')]
    found = sorted(node_times._own_time(events))
    rest = [('b:MatMul', 7), ('b:MatMul', 20), ('c:Add', 10)]
    assert found == [('a/call:PartitionedCall', 70), *rest]


@rows.parametrize(
    ('node', 'part'),
    [
        ('backbone_1/conv1_conv_1/convolution', 'backbone'),
        ('gradient_tape/mask_head_1_2/conv/Conv2DBackpropFilter:Conv2D', 'mask_head gradient'),
        ('PartitionedCall/roi_align/GatherV2', 'roi_align'),
        ('StatefulPartitionedCall/postprocess/mask_roi_align/roi_align/add', 'mask_roi_align'),
        ('while/body/add', '(other)'),
    ],
)
def test_parts_by_the_names_of_nodes(node, part):
    assert node_times.part_of(node) == part
