import logging

import pytest

from object_detection.config.overrides import apply_setting
from object_detection.errors import ConfigError
from object_detection.validation.validate import validate
from tests import rows
from tests.validation.pipelines import sound_pipeline

pytestmark = pytest.mark.usefixtures('small_backbone')

MODEL = 'model.faster_rcnn'
ALIGNED = f'{MODEL}.roi_align'
NOT_POOLED = (f'{MODEL}.maxpool_kernel_size=1', f'{MODEL}.maxpool_stride=1')
UPSAMPLES = (
    f'{MODEL}.second_stage_box_predictor.mask_rcnn_box_predictor.convolve_then_upsample_masks=true'
)


def configured(folder, *settings):
    pipeline = sound_pipeline(folder)
    for setting in settings:
        apply_setting(pipeline, setting)
    return pipeline


@rows.parametrize(
    ('settings', 'message'),
    [
        ([f'{ALIGNED}={{}}', NOT_POOLED[0]], f'{MODEL}.maxpool_stride: expected 1 or none.*: 2'),
        ([f'{ALIGNED}={{}}', NOT_POOLED[1]], f'{MODEL}.maxpool_kernel_size: .*Received: 2'),
        ([f'{ALIGNED}={{output_size: 0}}'], f'{ALIGNED}.output_size: expected at least 1'),
        (
            [f'{MODEL}.mask_roi_align={{sampling_ratio: 0}}'],
            f'{MODEL}.mask_roi_align.sampling_ratio: expected at least 1; adaptive sampling',
        ),
        ([f'{ALIGNED}={{canonical_size: 0}}'], f'{ALIGNED}.canonical_size: expected above 0'),
        (
            [f'{ALIGNED}={{min_level: 4 max_level: 3}}'],
            f'{ALIGNED}: expected 4 <= min_level <= max_level <= 5.*min_level 4, max_level 3',
        ),
        (
            [f'{MODEL}.mask_roi_align={{max_level: 6}}'],
            f'{MODEL}.mask_roi_align: expected .*min_level 4, max_level 6',
        ),
        # Masks are 15 pixels.
        ([f'{ALIGNED}={{output_size: 6}}', UPSAMPLES], 'to be multiples of 6, the size'),
        ([f'{MODEL}.mask_roi_align={{}}', UPSAMPLES], 'to be multiples of 14, the size'),
    ],
)
def test_what_does_not_fit(tmp_path, settings, message):
    is_pooled = any('maxpool' in setting for setting in settings)
    pipeline = configured(tmp_path, *([] if is_pooled else NOT_POOLED), *settings)
    with pytest.raises(ConfigError, match=message):
        validate(pipeline, for_what='export')


def test_sound_ones_pass(tmp_path):
    pipeline = configured(
        tmp_path,
        f'{MODEL}.maxpool_kernel_size=1',
        f'{MODEL}.maxpool_stride=1',
        f'{ALIGNED}={{output_size: 5 sampling_ratio: 3 min_level: 4 max_level: 4}}',
        f'{MODEL}.mask_roi_align={{impl: MATMUL aligned: false}}',
        UPSAMPLES,
        f'{MODEL}.second_stage_box_predictor.mask_rcnn_box_predictor.mask_height=28',
        f'{MODEL}.second_stage_box_predictor.mask_rcnn_box_predictor.mask_width=28',
    )
    validate(pipeline, for_what='export')


@pytest.mark.parametrize(
    ('settings', 'field', 'reason'),
    [
        (
            [f'{ALIGNED}={{}}', *NOT_POOLED],
            'initial_crop_size',
            'roi_align says how proposals are cropped',
        ),
        (
            [
                f'{MODEL}.mask_roi_align={{}}',
                f'{MODEL}.number_of_stages=2',
                f'{MODEL}.masks_from_crops=false',
                f'{MODEL}.second_stage_box_predictor.mask_rcnn_box_predictor'
                '.predict_instance_masks=false',
            ],
            'mask_roi_align',
            'masks are predicted by stage 3',
        ),
    ],
)
def test_fields_that_others_make_idle(tmp_path, caplog, settings, field, reason):
    with caplog.at_level(logging.WARNING, 'object_detection'):
        validate(configured(tmp_path, *settings), for_what='export')
    (told,) = [message for message in caplog.messages if f'{MODEL}.{field}' in message]
    assert reason in told
