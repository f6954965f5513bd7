"""The golden cases of the reference that this project does not reproduce, and why.

File (without '.npz') -> name, or pattern with `*`, -> reason. `tests/test_golden_cases.py` checks
that no entry is stale and that, with these, every case is accounted for.
"""

Lists = dict[str, dict[str, str]]

# The reference is wrong, or stricter or laxer than need be. A test claims each of these cases, and
# asserts what is so instead, and reads at least one part of what is recorded.
NOT_MATCHED: Lists = {
    'anchors': {
        'ssd_one_layer_div0': 'divides by zero; here it is a ValueError',
    },
    'centernet_postprocess': {
        'single_instance_shared': 'fails for offsets that all keypoints share; here it takes them',
    },
    'context_rcnn': {
        'padding_clipped': 'counts features that it has cut off; here these do not count',
        'padding_without_maximum': 'raises; here all features are kept, for models without context',
    },
    'context_rcnn_jobs': {
        'context_not_added_ids': 'fails by an unbound variable; here it is an error of options',
        'context_padded': 'fails when it writes the padded ids; here features and ids are padded',
        'detection_*': 'drops all but eleven features of an image; here they are kept',
        'embedding_none': 'embeds the padding if there are no detections; here nothing',
        'embedding_top9_bottom9': 'embeds a detection twice; here once',
        'embedding_*': 'appends to the embeddings that an image has; here they are replaced',
        'pipeline_context_sequences': 'as sequence_*',
        'pipeline_context_split': 'as split_*',
        'pipeline_detections': 'as detection_*',
        'pipeline_embeddings': 'as embedding_*',
        'rekey_*_week': 'writes a week as 1.0; here as 1',
        'rekey_resize_64': 'enlarges small images; here they are left as they are',
        'sequence_*': 'says that every format is JPG; here what it is',
        'sequence_not_added': 'fails by an unbound variable; here it is written',
        'split_*': 'begins a subset an image too early; here as many as fit are in one',
    },
    'crop_ops': {
        'mask_target_matmul': (
            'its matrix products fade out over a pixel outside of the image, where its kernel cuts '
            'off; compared inside'
        ),
        'matmul_*': 'as mask_target_matmul',
        'multilevel_matmul*': 'as mask_target_matmul',
        'reframe_bilinear': (
            'divides 0 by 0 for a box without area and sets its first pixel; here it covers nothing'
        ),
    },
    'deepmac_ops': {
        'box_consistency_full0_*': (
            'its crops fade out over a pixel outside of the image, and without any of their box '
            'the count is 0; compared inside, and where it is not'
        ),
        'build_fully_connected': 'cannot be built; here it is built',
        'build_subsamples': 'refuses a number of objects; here it is built',
        'crop_masks': 'as box_consistency_full0_*',
        'embedding_projection_logits': 'as box_consistency_full0_*',
        'mask_head_input_roi*': 'as box_consistency_full0_*',
        'mask_loss_without_masks': 'has no loss then, without a word; here it is an error',
        'points_without_depths': 'as mask_loss_without_masks',
    },
    'evaluation': {
        'coco_per_category_stock': (
            'metrics of each category raise with the stock engine; here they need no patched one'
        ),
        'weighted_pascal_masks': (
            'ranks equal scores of different classes as an unstable sort leaves them; here by class'
        ),
    },
    'expected_loss': {
        '*': 'cannot be built, as functions are missing; here they are built',
    },
    'hyperparams': {
        'group_norm': 'drops the norm without a word and keeps a bias; here it is built',
    },
    'input_transforms': {
        'additional_channels': 'as merge_boxes',
        'inverted_box': 'stops the training; here the object is left out and counted',
        'merge_boxes': 'drops rows of boxes and classes alone, so weights are of other objects',
        'nan_boxes': 'as merge_boxes',
        'multiclass_scores_empty': 'takes ids for indices there, so each class is one too far',
        'unrecognized': 'as merge_boxes',
    },
    'label_maps': {
        'duplicate_id': 'takes the first of two items with one id; here it is an error',
        'duplicate_name': 'takes the last of two items with one name; here it is an error',
        'no_name': 'takes items without any name; here it is an error',
    },
    'losses': {
        'frcnn_unsupported_bootstrap': (
            'builds softmax where bootstrapped sigmoid is configured; here what is configured'
        ),
    },
    'matchers': {
        'bipartite_builder_tf2': 'refuses the matcher under TensorFlow 2; here it is built',
        'hungarian_row2invalid': (
            'numbers the rows without those that are not valid; here as they are given'
        ),
    },
    'nms': {
        'agnostic_static': (
            'its padded kernel takes a box without any positive coordinate for a suppressed one; '
            'compared without such boxes'
        ),
        'agnostic_static_partitioned': 'as agnostic_static',
        'agnostic_two_classes': 'refuses more than one class of a box; here they are returned',
        'batch_iou': 'gives -1 for boxes without any positive coordinate; here IoU is 0',
        'combined_agnostic': 'refuses the combination; here one algorithm does them all',
        'combined_change_frame': 'as combined_agnostic',
        'combined_masks': 'as combined_agnostic',
        'combined_numvalid': 'as combined_agnostic',
        'partitioned_padded': 'as agnostic_static',
        'single_multiclass_padded': 'as agnostic_static',
        'soft_nms_static': 'as combined_agnostic',
        'static_partitioned_masks': (
            'its partitioned kernel sorts boxes and scores, but not what is carried along'
        ),
    },
    'ops': {
        'merge_boxes': 'takes boxes for the same that differ by 1e-5; here only equal ones',
    },
    'optimizers': {
        'all_defaults_rms': (
            'reads rms_prop_optimizer.decay as a decay of the learning rate; here it is that of '
            'the average. Compared under its reading'
        ),
        'rms_*': 'as all_defaults_rms',
    },
    'preprocessor': {
        'hflip_kp_noperm': 'leaves out the flip of keypoints; here it is an error',
        'hflip_p0': 'cannot build probability 0; here it never flips',
        'image_scale_*': 'resizes masks along other axes than the image; here along the same',
        'resize_image_BICUBIC': 'leaves the range of values of the image; here it is clipped',
        'scale_boxes_to_pixel_coordinates': 'scales keypoints as well; here they stay normalized',
        'square_crop_*': (
            'loses the last row and column of odd squares and at the edges of the image; compared '
            'without'
        ),
        'vflip_kp_noperm': 'as hflip_kp_noperm',
    },
    'pyramids': {
        'custom_min3_max5': 'cannot build a pyramid without coarser levels; here it is built',
    },
    'score_converters': {
        'calib_class_sigmoid': 'refuses sigmoid calibrations; here they are built',
        'calib_sigmoid': 'as calib_class_sigmoid',
    },
    'similarity': {
        'ioa': 'divides 0 by 0 where the second box has no area; here that is 0',
    },
    'tf_example_decoder': {
        'coco_plain_nolabelmap': (
            'returns no classes, to be padded with zeros, where a record lacks them; here an error'
        ),
        'minimal_all': 'returns no masks where a record lacks them; here an error',
        'synthetic_hierarchy': 'fails for a text that is not in the label map; here it is no class',
    },
    'tf_sequence_example_decoder': {
        'fewer_labels': 'takes frames whose lists differ in length; here an error',
        'frame_count_mismatch': 'as fewer_labels',
        'no_height': 'needs the size in the record; here that of the image counts',
        'no_labels': 'as fewer_labels',
        'unknown_labels*': 'looks up names alone; here display names too',
    },
}

_NO_BOXES = 'a call without boxes; the ground truth of a batch always has them'
_CONFIDENCES = 'the classes are the confidences: records hold no others'
_NO_CALLER = 'a helper of the reference that nothing here needs'
_NO_ROWS_DROPPED = 'boxes of a batch are not dropped, which changes its shape; they get no weight'

# Parts of the reference that are not built. No test claims these cases.
NOT_BUILT: Lists = {
    'box_list_ops': {
        'pad_or_clip_*': _NO_CALLER,
        'prune_completely_outside_window': _NO_ROWS_DROPPED,
        'prune_small_boxes': _NO_ROWS_DROPPED,
        'refine_boxes': 'box voting: no config leads to it',
    },
    'centernet_postprocess': {
        'embeddings': 'an intermediate value: detections have embeddings of length 1',
        'indices': _NO_CALLER,
        'mask_from_true_shape': 'compares cells with pixels, so that nothing is masked',
    },
    'centernet_targets': {
        'center_mo*_exp2.0_*': 'an exponent that no config leads to',
        'center_mo*_iou_*': 'peaks of another form, which no config leads to',
        'corner_offset': _NO_CALLER,
        'floor_offsets': 'an intermediate value of the reference',
        'get_batch_predictions_from_indices': 'an intermediate value of the reference',
        'kp_*_noboxes': _NO_BOXES,
        'kp_heatmap_*_boxes0': _NO_BOXES,
        'kp_heatmap_keypoint_above_1.01': 'keypoints outside of the image draw no peak',
        'temporal_offset': 'an intermediate value: whole models are compared',
        'track': 'an intermediate value: whole models are compared',
    },
    'crop_ops': {
        'reframe_corners': 'an intermediate value of the reference',
    },
    'evaluation': {
        'pascal_nms': 'suppression by an evaluator, which no config of the reference turns on',
    },
    'input_transforms': {
        'labeled_classes': 'raises there; there is no such field in records',
    },
    'keypoint_ops': {
        'clip_to_window': _NO_CALLER,
        'enclosing_boxes': _NO_CALLER,
        'scale': _NO_CALLER,
        'to_absolute': _NO_CALLER,
        'to_normalized': _NO_CALLER,
    },
    'learning_rates': {
        'exponential_decay_with_warmup': 'a helper that no config reaches',
    },
    'ops': {
        'dense_to_sparse_boxes': _NO_CALLER,
        'gather_with_padding': _NO_CALLER,
        'indices_to_dense': _NO_CALLER,
        'nearest_upsampling': 'a layer of Keras does it',
    },
    'preprocessor': {
        'builder_defaults': (
            'keywords of its functions; the defaults are those of the schema, as are ours'
        ),
        'common_inputs': 'inputs of the other cases',
        'func_arg_map_*': 'which arguments its functions take; here each takes the whole example',
        'rank3_image': 'its steps take batches of one image; here they take the image',
    },
    'target_assigner': {
        'bad_combination': 'assigners are built of their parts, there are no names to combine',
        'multibox_tf2': 'assigners are built of their parts, there are no names to combine',
    },
    'tf_example_decoder': {
        'synthetic_features': 'inputs of the other cases',
    },
    'tf_sequence_example_decoder': {
        '*fully_annotated': 'no config says that all frames are annotated',
        'make_sequence_example': 'writes sequences',
    },
}

# Outputs that tests need not read of a case that they claim: what concerns parts that are not
# built, and what repeats other outputs.
NOT_COMPARED: Lists = {
    'anchors': {
        'feature_map_index': 'level_counts tell the level; the index restarts at each grid',
    },
    'image_resizers': {
        'n_outputs*': 'how many tensors the call of the reference returns',
    },
    'input_transforms': {
        't/*': 'the same objects before they are padded; p/* are compared',
        'p/filename': 'not carried: source_id names the image',
        'p/key': 'not carried: source_id names the image',
        'p/groundtruth_confidences': _CONFIDENCES,
        'p/groundtruth_image_confidences': (
            'a padded list, which no longer tells the classes; here one number for each class'
        ),
        'p/image_additional_channels': 'pictures show the first three channels',
        'p/original_image': 'pictures are drawn on the resized images',
        'p/source_id': 'the reference gives a hash as text',
    },
    'nms': {
        'boundaries': 'no config leads to boundaries of masks',
        'sorted_*': 'an intermediate value of the reference',
    },
    'ops': {
        'k3r2': 'no dilated convolution has a stride',
        'k4': 'no convolution has an even kernel',
    },
    'preprocessor': {
        'draws.*': 'what the reference drew: an input here',
        'groundtruth_confidences': _CONFIDENCES,
    },
}
