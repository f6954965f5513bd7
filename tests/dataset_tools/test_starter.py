import dataclasses
import functools

import numpy as np
import pytest

from object_detection.config.reader import parse_pipeline
from object_detection.dataset_tools import starter, starter_weights
from object_detection.dataset_tools.data_statistics import DataStatistics
from object_detection.errors import ConfigError
from tests import rows

# 100 images of 400 x 600 pixels (height x width), with objects of 60 x 60 pixels.
DATA = DataStatistics(
    pattern='train-?????-of-?????',
    label_map_path='map.pbtxt',
    class_names={1: 'cat', 3: 'dog'},
    num_images=100,
    num_sampled=100,
    image_sizes=np.full((100, 2), [400, 600]),
    objects_per_image=np.full(100, 12),
    box_sizes=np.full((1200, 2), 0.1),
    box_classes=np.ones(1200, np.int64),
    mask_type='PNG_MASKS',
)


def make(data=DATA, validation=None, *, device='cpu', task='', **options):
    options = {'weights': None} | options
    return starter.make(data, validation, device=device, task=task, **options)


def model_of(made):
    return made.model


def anchors_of(made):
    model = model_of(made)
    if made.pipeline.model.HasField('ssd'):
        return model.anchor_generator.multiscale_anchor_generator
    return model.first_stage_anchor_generator.multiscale_anchor_generator


def reasons_of(made):
    return dict(made.reasons)


def test_classes_paths_and_counts_are_those_of_the_data():
    made = make(validation=dataclasses.replace(DATA, pattern='val-?????-of-?????'))
    pipeline, model = made.pipeline, model_of(made)
    assert model.num_classes == 3
    assert 'Without any object: dog' in reasons_of(made)['model.faster_rcnn.num_classes']
    assert pipeline.train_input_reader.label_map_path == 'map.pbtxt'
    assert list(pipeline.train_input_reader.tf_record_input_reader.input_path) == [DATA.pattern]
    (evaluation,) = pipeline.eval_input_reader
    assert list(evaluation.tf_record_input_reader.input_path) == ['val-?????-of-?????']
    assert pipeline.train_input_reader.max_number_of_boxes == 16
    suppression = model.second_stage_post_processing.batch_non_max_suppression
    assert suppression.max_total_detections == 20
    assert 'eval_input_reader' not in reasons_of(made)


def test_images_are_as_large_as_small_objects_need_and_the_device_allows():
    # 20 pixels for a tenth of the image: 200 pixels, rounded up to a multiple of 32.
    resizer = model_of(make()).image_resizer.keep_aspect_ratio_resizer
    assert (resizer.max_dimension, resizer.pad_height, resizer.pad_width) == (224, 160, 224)
    tiny = dataclasses.replace(DATA, box_sizes=np.full((1200, 2), 0.01))
    made = make(tiny)
    assert model_of(made).image_resizer.keep_aspect_ratio_resizer.max_dimension == 512
    assert 'That is little' in reasons_of(made)['model.faster_rcnn.image_resizer']
    # Never much larger than the images are.
    resizer = model_of(make(tiny, device='gpu')).image_resizer.keep_aspect_ratio_resizer
    assert resizer.max_dimension == 608


def test_half_of_the_objects_of_a_rare_class_are_large_enough():
    # 40 dogs of 1200 objects: 9 have 0.02 of the longer side, 22 have 0.05 and 9 have 0.2.
    sizes = np.concatenate([np.full(1160, 0.1), np.full(9, 0.02), np.full(22, 0.05)])
    sizes = np.repeat(np.concatenate([sizes, np.full(9, 0.2)])[:, np.newaxis], 2, axis=1)
    classes = np.concatenate([np.full(1160, 1), np.full(40, 3)])
    made = make(dataclasses.replace(DATA, box_sizes=sizes, box_classes=classes))
    # 20 pixels for the median, 0.05: 400 pixels, rounded up to a multiple of 32, are 416.
    assert model_of(made).image_resizer.keep_aspect_ratio_resizer.max_dimension == 416
    reason = reasons_of(made)['model.faster_rcnn.image_resizer']
    assert '(1 of 10 is smaller) has 42 pixels then, and dog, the smallest class, 21' in reason
    assert 'That is little' not in reason
    # 0.01 would need 2000 pixels; the limit of the device is 512, on which it has 5.
    sizes[classes == 3] = 0.01
    made = make(dataclasses.replace(DATA, box_sizes=sizes, box_classes=classes))
    assert model_of(made).image_resizer.keep_aspect_ratio_resizer.max_dimension == 512
    assert 'That is little' in reasons_of(made)['model.faster_rcnn.image_resizer']


@rows.parametrize('size', [0.02, 0.1, 0.5])
@rows.parametrize('device', starter.DEVICES)
def test_anchors_are_as_large_as_the_objects(size, device):
    made = make(dataclasses.replace(DATA, box_sizes=np.full((1200, 2), size)), device=device)
    model = model_of(made)
    side = model.image_resizer.keep_aspect_ratio_resizer.max_dimension * size
    anchors = anchors_of(made)
    smallest = anchors.anchor_scale * 2**anchors.min_level
    largest = anchors.anchor_scale * 2**anchors.max_level * 2**0.5
    # An anchor with half the side of an object still has an IoU of a quarter with it.
    # Maps of a quarter of the size of the image cost too much on phones.
    assert smallest <= max(1.5 * side, 20.0 if device == 'mobile' else 10.0)
    assert largest >= side / 1.5
    assert (anchors.min_level, anchors.max_level) == (
        model.feature_extractor.fpn.min_level,
        model.feature_extractor.fpn.max_level,
    )
    assert list(anchors.aspect_ratios) == [1.0]


def test_aspect_ratios_are_those_of_the_objects():
    wide = np.tile([0.05, 0.1], (1200, 1))
    anchors = model_of(make(dataclasses.replace(DATA, box_sizes=wide))).first_stage_anchor_generator
    assert list(anchors.multiscale_anchor_generator.aspect_ratios) == [1.0, 2.0]
    both = np.concatenate([wide[:600], wide[:600, ::-1]])
    anchors = model_of(make(dataclasses.replace(DATA, box_sizes=both))).first_stage_anchor_generator
    assert list(anchors.multiscale_anchor_generator.aspect_ratios) == [1.0, 2.0, 0.5]


def test_the_fullest_image_has_ten_proposals_for_each_object():
    for most, proposals in ((6, 100), (28, 280), (500, 1000)):
        data = dataclasses.replace(DATA, objects_per_image=np.array([1] * 99 + [most]))
        made = make(data)
        assert model_of(made).first_stage_max_proposals == proposals
        reason = reasons_of(made)['model.faster_rcnn.first_stage_max_proposals']
        assert f'{proposals} regions an image for up to {most} objects' in reason


def test_masks_are_a_task_where_the_records_have_them():
    pipeline = make().pipeline
    assert pipeline.model.faster_rcnn.number_of_stages == 3
    assert 'coco_mask_metrics' in pipeline.eval_config.metrics_set
    assert pipeline.train_input_reader.load_instance_masks
    no_masks = dataclasses.replace(DATA, mask_type='')
    for pipeline in (make(task='boxes').pipeline, make(no_masks).pipeline):
        assert pipeline.model.faster_rcnn.number_of_stages == 2
        assert list(pipeline.eval_config.metrics_set) == ['coco_detection_metrics']
        assert not pipeline.train_input_reader.load_instance_masks
        predictor = pipeline.model.faster_rcnn.second_stage_box_predictor.mask_rcnn_box_predictor
        assert not predictor.predict_instance_masks
    with pytest.raises(ConfigError, match='--task masks: expected records with masks'):
        make(no_masks, task='masks')


def test_the_schedule_has_as_many_steps_as_so_many_images_need():
    assert [starter.images_to_see(count) for count in (16, 100, 500, 118_000)] == [
        2000,
        6000,
        12_000,
        12 * 118_000,
    ]
    config = make().pipeline.train_config
    assert (config.batch_size, config.num_steps) == (4, 1500)
    schedule = config.optimizer.momentum_optimizer.learning_rate.cosine_decay_learning_rate
    assert (schedule.total_steps, schedule.warmup_steps) == (1500, 150)


def test_backbone_weights_choose_the_backbone_and_freeze_its_norms():
    found = starter_weights.Weights('w/resnet50.h5', 'classification', depth=50)
    made = make(weights=found)
    extractor = model_of(made).feature_extractor
    assert extractor.type == 'faster_rcnn_resnet50_fpn_keras'
    assert (extractor.batch_norm_trainable, extractor.frozen_stages) == (False, 2)
    config = made.pipeline.train_config
    assert (config.fine_tune_checkpoint, config.fine_tune_checkpoint_type) == (
        'w/resnet50.h5',
        'classification',
    )
    assert 'weights download' in reasons_of(make())['train_config.fine_tune_checkpoint']


def test_a_detector_brings_its_model_along():
    trained = parse_pipeline(
        'model { faster_rcnn { num_classes: 90 first_stage_max_proposals: 77 } }'
        'train_config { data_augmentation_options { random_vertical_flip {} } }',
        'test',
    )
    found = starter_weights.Weights('zoo/checkpoint', 'detection', pipeline=trained)
    # The records have masks, the detector predicts none.
    made = make(weights=found)
    assert model_of(made).number_of_stages == 2
    assert model_of(made).num_classes == 3
    assert model_of(made).first_stage_max_proposals == 77
    (step,) = made.pipeline.train_config.data_augmentation_options
    assert step.WhichOneof('preprocessing_step') == 'random_vertical_flip'
    assert made.pipeline.train_config.fine_tune_checkpoint_type == 'detection'
    with pytest.raises(ConfigError, match='predicts no masks'):
        make(weights=found, task='masks')
    trained = parse_pipeline('model { center_net { num_classes: 90 } }', 'test')
    with pytest.raises(ConfigError, match='Received: center_net'):
        make(weights=starter_weights.Weights('zoo', 'detection', pipeline=trained))


def test_a_single_shot_detector_is_for_phones_or_comes_with_weights():
    made = make(device='mobile')
    model, reasons = model_of(made), reasons_of(made)
    assert made.pipeline.model.WhichOneof('model') == 'ssd'
    assert model.feature_extractor.type == 'ssd_mobilenet_v2_fpn_keras'
    assert (model.num_classes, made.pipeline.train_config.batch_size) == (3, 8)
    assert model.post_processing.batch_non_max_suppression.max_total_detections == 20
    # The records have masks.
    assert not made.pipeline.train_input_reader.load_instance_masks
    assert list(made.pipeline.eval_config.metrics_set) == ['coco_detection_metrics']
    assert 'predicts boxes alone' in reasons['model.ssd.feature_extractor']
    assert 'weights download mobilenet_v2' in reasons['train_config.fine_tune_checkpoint']
    with pytest.raises(ConfigError, match='--task masks: expected --for cpu or gpu'):
        make(device='mobile', task='masks')
    trained = parse_pipeline('model { ssd { num_classes: 90 negative_class_weight: 7 } }', 'test')
    made = make(weights=starter_weights.Weights('zoo', 'detection', pipeline=trained))
    assert (model_of(made).num_classes, model_of(made).negative_class_weight) == (3, 7)
    assert not made.pipeline.train_input_reader.load_instance_masks


def test_a_backbone_may_be_named(tmp_path):
    made = make(backbone='keras:ConvNeXtTiny')
    extractor = model_of(made).feature_extractor
    assert (extractor.type, extractor.backbone) == ('faster_rcnn_fpn', 'keras:ConvNeXtTiny')
    assert 'keras:ConvNeXtTiny' in reasons_of(made)['model.faster_rcnn.feature_extractor']
    advice = reasons_of(made)['train_config.fine_tune_checkpoint']
    assert 'tfod weights download keras:ConvNeXtTiny --output weights' in advice
    # Of this one no weights are published.
    made = make(device='mobile', backbone='mobiledet_cpu')
    extractor = model_of(made).feature_extractor
    assert (extractor.type, extractor.backbone) == ('ssd_fpn', 'mobiledet_cpu')
    assert 'download' not in reasons_of(made)['train_config.fine_tune_checkpoint']
    trained = parse_pipeline('model { ssd { num_classes: 90 } }', 'test')
    with pytest.raises(ConfigError, match='--backbone resnet_v1_50: expected --weights of a back'):
        make(
            backbone='resnet_v1_50',
            weights=starter_weights.Weights('zoo', 'detection', pipeline=trained),
        )


def test_weights_of_a_named_backbone_are_found(tmp_path):
    name = tmp_path / 'convnext_tiny_notop.h5'
    find = functools.partial(starter_weights.find, backbone='keras:ConvNeXtTiny')
    with pytest.raises(ConfigError, match='wrote for keras:ConvNeXtTiny, a folder of them'):
        find(str(tmp_path))
    name.touch()
    found = find(str(tmp_path))
    assert (found.path, found.kind) == (str(name), 'classification')
    assert find(str(name)) == found
    made = make(backbone='keras:ConvNeXtTiny', weights=found)
    extractor = model_of(made).feature_extractor
    assert (extractor.batch_norm_trainable, extractor.frozen_stages) == (False, 0)
    assert made.pipeline.train_config.fine_tune_checkpoint == str(name)


def test_weights_of_a_mobilenet_are_found_for_phones(tmp_path):
    name = 'mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224_no_top.h5'
    (tmp_path / name).touch()
    (tmp_path / 'resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5').touch()
    found = starter_weights.find(str(tmp_path), is_mobile=True)
    assert (found.path, found.kind) == (str(tmp_path / name), 'classification')
    assert (
        'begins with the weights'
        in (reasons_of(make(device='mobile', weights=found))['model.ssd.feature_extractor'])
    )
    assert starter_weights.find(str(tmp_path)).depth == 50
    with pytest.raises(ConfigError, match='expected a file that `tfod weights download` wrote'):
        starter_weights.find(str(tmp_path / name))


def test_weights_of_torchvision_have_strides_and_padding_of_their_own(tmp_path):
    for depth, strides in ((50, {'stride_in_1x1': False}), (18, {})):
        path = tmp_path / f'resnet{depth}-0676ba61.pth'
        path.touch()
        found = starter_weights.find(str(path))
        assert (found.path, found.kind, found.depth) == (str(path), 'classification', depth)
        extractor = model_of(make(weights=found)).feature_extractor
        fields = {field.name: value for field, value in extractor.ListFields()}
        assert fields['type'] == f'faster_rcnn_resnet{depth}_fpn_keras'
        assert fields['padding_mode'] == extractor.SYMMETRIC_ALL
        assert {k: v for k, v in fields.items() if k == 'stride_in_1x1'} == strides


def test_weights_are_found_by_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert starter_weights.find('') is None
    folder = tmp_path / 'weights'
    folder.mkdir()
    for depth in (101, 50):
        (folder / f'resnet{depth}_weights_tf_dim_ordering_tf_kernels_notop.h5').touch()
    (folder / 'other.h5').touch()
    found = starter_weights.find('')
    assert (found.depth, found.kind) == (50, 'classification')
    named = folder / 'resnet101_weights_tf_dim_ordering_tf_kernels_notop.h5'
    assert starter_weights.find(str(named)).depth == 101
    for path in ('absent', 'weights/other.h5'):
        with pytest.raises(ConfigError, match=f'--weights {path}: expected a file that'):
            starter_weights.find(path)
    zoo = tmp_path / 'zoo'
    (zoo / 'checkpoint').mkdir(parents=True)
    (zoo / 'pipeline.config').write_text('model { faster_rcnn { num_classes: 90 } }')
    found = starter_weights.find(str(zoo))
    assert (found.path, found.kind) == (str(zoo / 'checkpoint'), 'detection')
    assert found.pipeline.model.faster_rcnn.num_classes == 90
    trained = tmp_path / 'model'
    trained.mkdir()
    (trained / 'resolved_pipeline.config').write_text('model { faster_rcnn { num_classes: 7 } }')
    assert starter_weights.find(str(trained)).path == str(trained)


def test_a_transformer_begins_with_no_weights_of_another_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = 'weights/resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5'
    (tmp_path / 'weights').mkdir()
    (tmp_path / name).touch()
    find = functools.partial(starter_weights.find, is_transformer=True)
    assert starter_weights.find('').path == name
    assert find('') is None
    made = make(model='detr')
    assert model_of(made).feature_extractor.backbone == 'resnet_vd_18'
    assert not model_of(made).feature_extractor.freeze_norms
    reason = reasons_of(made)['train_config.fine_tune_checkpoint']
    assert "The folder 'weights' has none of resnet_vd_18." in reason
    for path in ('weights', name):
        with pytest.raises(ConfigError, match='there are no weights of a ResNet-vd alone'):
            find(path)
    trained = parse_pipeline('model { faster_rcnn { num_classes: 90 } }', 'test')
    zoo = starter_weights.Weights('zoo', 'detection', pipeline=trained)
    with pytest.raises(ConfigError, match=r'--model detr: expected.*Received: zoo, a faster_rcnn'):
        make(model='detr', weights=zoo)


def test_validation_records_are_found_next_to_the_training_records(tmp_path):
    prefix = str(tmp_path / 'train_cats')
    assert starter.validation_prefix(prefix) == ''
    (tmp_path / 'valid_cats-00000-of-00001').touch()
    assert starter.validation_prefix(prefix) == str(tmp_path / 'valid_cats')


def test_text_reads_back_as_the_config_and_contains_the_reasons():
    made = make()
    text = starter.to_text(made, 'my.config')
    assert parse_pipeline(text, 'test') == made.pipeline
    assert '# Command: tfod train --config my.config' in text
    assert '- model.faster_rcnn.num_classes: the largest id' in text
    lines = starter.format_reasons(made, DATA)
    assert lines[0] == '100 images; objects: cat 1200, dog 0'
    assert all(len(line) <= 100 for line in lines)
