"""Names of backbones in files of transformers; those of whole networks are in tests/models."""

from object_detection.weights.pytorch import transformers_backbones as backbones


def test_names_of_timm_are_those_of_detr_as_it_was_published():
    names = [f'bn1.{name}' for name in ('weight', 'bias', 'running_mean', 'running_var')]
    names += ['conv1.weight', 'layer1.0.conv3.weight', 'layer1.0.bn3.bias']
    names += ['layer4.2.downsample.0.weight', 'layer4.2.downsample.1.running_var']
    ours = [
        *(f'conv1_bn/{name}' for name in ('gamma', 'beta', 'moving_mean', 'moving_variance')),
        *('conv1_conv/kernel', 'conv2_block1_3_conv/kernel', 'conv2_block1_3_bn/beta'),
        *('conv5_block3_0_conv/kernel', 'conv5_block3_0_bn/moving_variance'),
    ]
    for scope in ('', 'backbone.conv_encoder.model.', 'model.backbone.model._backbone.'):
        theirs = [f'{scope}{name}' for name in names]
        found = backbones.RESNET.translate([*theirs, 'model.bn1.weight', 'bbox.layers.0.weight'])
        assert found == dict(zip(ours, theirs, strict=True))


def test_the_first_layers_are_of_the_networks():
    names = {
        backbones.RESNET: 'embedder.embedder',
        backbones.RESNET_D: 'embedder.embedder.0',
        backbones.HGNET_V2: 'embedder.stem1',
    }
    for system, layer in names.items():
        scoped = [f'{layer}.convolution.weight', f'{layer}.normalization.weight']
        found = system.translate([f'model.backbone.model.{name}' for name in scoped])
        assert list(found) == [system.first.kernel, f'{system.first.norm}/gamma']


def test_files_of_other_networks_have_none_of_their_names():
    there = ('encoder.stages.0.blocks.0.layers.0.conv1.convolution.weight', 'embedder.stem1.weight')
    assert not backbones.RESNET.translate(there)
    theirs = 'encoder.stages.0.layers.0.layer.0.convolution.weight'
    assert not backbones.HGNET_V2.translate([theirs, 'layer1.0.conv1.weight'])


def test_the_first_names_of_dinov2_are_those_of_rf_detr_as_it_was_published():
    old_and_new = {
        'attention.attention.query.weight': 'attention.q_proj.weight',
        'attention.attention.key.bias': 'attention.k_proj.bias',
        'attention.attention.value.bias': 'attention.v_proj.bias',
        'attention.output.dense.weight': 'attention.o_proj.weight',
        'mlp.weights_out.weight': 'mlp.down_proj.weight',
        'mlp.fc1.weight': 'mlp.fc1.weight',
    }

    def ours(scope, names):
        return list(backbones.DINOV2.translate([f'{scope}.layer.11.{name}' for name in names]))

    old = ours('backbone.0.encoder.encoder.encoder', old_and_new)
    assert old == ours('model.backbone.backbone.encoder', old_and_new.values())
    kernels = ('query/kernel', 'key/bias', 'value/bias', 'output/kernel', 'down/kernel')
    assert old == [f'block11_{name}' for name in (*kernels, 'fc1/kernel')]
    others = ('embeddings.mask_token', 'encoder.layer.0.mlp.weights_in.weight', 'norm1.weight')
    assert not backbones.DINOV2.translate(others)
