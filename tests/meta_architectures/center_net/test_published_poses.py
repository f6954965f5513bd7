"""The published CenterNets of keypoints are built with a label map that has their keypoints."""

import pytest
from google.protobuf import text_format

from object_detection.config import ranges
from object_detection.meta_architectures import tracing
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from tests.meta_architectures.center_net.test_zoo_keys import pose_label_map

KEYPOINTS = 17


@pytest.mark.parametrize(
    'name',
    [
        'resnet50_v2_512x512_kpts_coco17_tpu-8',
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                'resnet50_v1_fpn_512x512_kpts_coco17_tpu-8',
                'hourglass104_512x512_kpts_coco17_tpu-32',
                'hourglass104_1024x1024_kpts_coco17_tpu-32',
            )
        ),
    ],
)
def test_a_published_config_of_keypoints(shared, tmp_path, name):
    text = (shared / f'reference/configs/tf2/centernet_{name}.config').read_text()
    model = text_format.Parse(text, TrainEvalPipelineConfig()).model
    (task,) = model.center_net.keypoint_estimation_task
    assert task.keypoint_class_name == '/m/01g317'
    assert len(task.keypoint_label_to_std) == KEYPOINTS
    labels = tmp_path / 'label_map.txt'
    labels.write_text(pose_label_map(task))
    model.center_net.keypoint_label_map_path = str(labels)
    assert ranges.find(model, path='model').errors == []
    assert tracing.check(model, 3, stages=True) == ()
