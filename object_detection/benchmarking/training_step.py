"""The training step of a config on a batch of random images and objects."""

from object_detection.benchmarking import work

SEED = 0


def arrays(pipeline, detector, batch_size: int, side: tuple[int, int]) -> dict:
    """A batch of `work.batch` with the masks that the detector needs."""
    from object_detection.config import families

    needs = families.needs(pipeline.model)
    mask_size = needs.example_options['mask_crop_size'] if needs.masks else None
    return work.batch(batch_size, side, detector.num_classes, mask_size)


def mask_stage(detector):
    """The part that computes masks, if the detector has one."""
    return getattr(detector, 'mask_stage', None)


def build_step(pipeline, detector, batch, jit_compile: bool | None = False):
    """Builds the step as training does, except for a rate at which the weights hardly change.

    `jit_compile` replaces the config's; None leaves that.
    """
    import tensorflow as tf

    from object_detection.training import setup

    if jit_compile is not None:
        pipeline.train_config.jit_compile = jit_compile
    optimizer = pipeline.train_config.optimizer
    rate = getattr(optimizer, optimizer.WhichOneof('optimizer')).learning_rate
    rate.constant_learning_rate.learning_rate = 1e-6
    rate.ClearField('warmup')
    optimizer.ClearField('learning_rate_unit')
    specs = {name: tf.type_spec_from_value(value) for name, value in batch.items()}
    return setup.build_step(pipeline.train_config, detector, specs, SEED)


def count_mask_rows(detector):
    """Returns a variable that every step adds the number of its mask RoIs an image to."""
    import tensorflow as tf

    total = tf.Variable(0, trainable=False)
    predict = detector.predict

    def counting(*arguments, **options):
        predictions = predict(*arguments, **options)
        if getattr(predictions, 'masks', None) is not None:
            total.assign_add(tf.shape(predictions.masks.rows)[1])
        return predictions

    detector.predict = counting
    return total


def count_flops(pipeline, step, batch, mask_rois: int):
    """Counts the step; without padding, as if that many mask RoIs were always there."""
    import tensorflow as tf

    from object_detection.training.monitoring import model_summary

    masks = mask_stage(step.detector)
    if masks is not None and not masks.pad_regions:
        masks.pad_regions, masks.max_regions = True, mask_rois
        # Another one, as a step keeps the graph that it has run.
        step = build_step(pipeline, step.detector, batch)
    traced = tf.function(lambda: step(batch), autograph=False)
    return model_summary.count(traced.get_concrete_function().graph)
