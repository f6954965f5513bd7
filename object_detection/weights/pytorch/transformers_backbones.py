"""Names of the weights of backbones in files of transformers, as layers of our backbones.

The names are those of the backbone in a detector, `model.backbone.model.<name>` or
`model.backbone.backbone.<name>`, of the backbone alone, and of earlier versions. A file may have
names of several backbones; a translation finds those of its own.
"""

import re
from collections.abc import Collection

from object_detection.models.backbones.resnet_v1 import Options, Padding
from object_detection.weights.third_party_names import IMAGENET, First, Format, Pixels

# Of transformers and, in files of its first versions, of timm's networks.
_SCOPE = r'(?:(?:model\.)?backbone\.(?:conv_encoder\.)?model\.(?:_backbone\.)?)?'
_NORM = {
    **{'weight': 'gamma', 'bias': 'beta'},
    **{'running_mean': 'moving_mean', 'running_var': 'moving_variance'},
}
_VARIABLE = (
    r'(?:(?P<conv_variable>convolution\.weight)|'
    rf'normalization\.(?P<norm_variable>{"|".join(_NORM)}))'
)
_VARIABLE_OR_AFFINE = rf'(?:{_VARIABLE}|lab\.(?P<affine_variable>scale|bias))'


def _variable(match: re.Match, kernel: str = 'kernel') -> str:
    """Returns the end of our name: of a convolution's kernel, or of what follows it."""
    if affine := match.groupdict().get('affine_variable'):
        return f'lab/{affine}'
    if match['norm_variable']:
        return f'bn/{_NORM[match["norm_variable"]]}'
    return f'conv/{kernel}'


_RESNET_STEM = re.compile(rf'{_SCOPE}embedder\.embedder(?:\.(?P<number>\d))?\.{_VARIABLE}')
_RESNET_LAYER = re.compile(
    rf'{_SCOPE}encoder\.stages\.(?P<stage>\d+)\.layers\.(?P<block>\d+)\.'
    rf'(?:layer\.(?P<conv>\d)|shortcut(?:\.1)?)\.{_VARIABLE}'
)
_TIMM_VARIABLE = rf'(?:weight|{"|".join(_NORM)})'
_TIMM_STEM = re.compile(rf'{_SCOPE}(?P<kind>conv|bn)1\.(?P<variable>{_TIMM_VARIABLE})')
_TIMM_LAYER = re.compile(
    rf'{_SCOPE}layer(?P<stage>\d+)\.(?P<block>\d+)\.(?:(?P<kind>conv|bn)(?P<conv>\d)|'
    rf'downsample\.(?P<part>[01]))\.(?P<variable>{_TIMM_VARIABLE})'
)


def resnet(names: Collection[str]) -> dict[str, str]:
    """Returns our name 'conv2_block1_1_conv/kernel' -> the name in the file; see `resnet_d`."""
    found = {}
    for name in names:
        if match := _RESNET_STEM.fullmatch(name):
            number = '' if match['number'] is None else f'_{int(match["number"]) + 1}'
            found[f'conv1{number}_{_variable(match)}'] = name
        elif match := _RESNET_LAYER.fullmatch(name):
            conv = 0 if match['conv'] is None else int(match['conv']) + 1
            found[f'{_block(match, 0)}_{conv}_{_variable(match)}'] = name
        elif match := _TIMM_STEM.fullmatch(name):
            found[f'conv1_{_timm_variable(match["kind"], match["variable"])}'] = name
        elif match := _TIMM_LAYER.fullmatch(name):
            kind = match['kind'] or ('conv', 'bn')[int(match['part'])]
            variable = _timm_variable(kind, match['variable'])
            found[f'{_block(match, 1)}_{match["conv"] or 0}_{variable}'] = name
    return found


def _block(match: re.Match, first_stage: int) -> str:
    return f'conv{int(match["stage"]) - first_stage + 2}_block{int(match["block"]) + 1}'


def _timm_variable(kind: str, variable: str) -> str:
    return 'conv/kernel' if kind == 'conv' else f'bn/{_NORM[variable]}'


_HGNET_STEM = re.compile(rf'{_SCOPE}embedder\.(?P<layer>stem\w+)\.{_VARIABLE_OR_AFFINE}')
_HGNET_DOWNSAMPLE = re.compile(rf'{_SCOPE}encoder\.stages\.(?P<stage>\d+)\.downsample\.{_VARIABLE}')
_HGNET_LAYER = re.compile(
    rf'{_SCOPE}encoder\.stages\.(?P<stage>\d+)\.blocks\.(?P<block>\d+)\.'
    r'(?P<row>layers|aggregation)\.(?P<layer>\d+)\.(?:conv(?P<part>[12])\.)?'
    rf'{_VARIABLE_OR_AFFINE}'
)
_PARTS = {None: '', '1': '_pointwise', '2': '_depthwise'}


def hgnet_v2(names: Collection[str]) -> dict[str, str]:
    """Returns our name 'stage1_block1_layer1_conv/kernel' -> the name in the file."""
    found = {}
    for name in names:
        kernel = 'kernel'
        if match := _HGNET_STEM.fullmatch(name):
            layer = match['layer']
        elif match := _HGNET_DOWNSAMPLE.fullmatch(name):
            layer, kernel = f'stage{int(match["stage"]) + 1}_downsample', 'depthwise_kernel'
        elif match := _HGNET_LAYER.fullmatch(name):
            row = match['row'].removesuffix('s')
            stage, block, number = (int(match[each]) + 1 for each in ('stage', 'block', 'layer'))
            layer = f'stage{stage}_block{block}_{row}{number}{_PARTS[match["part"]]}'
            kernel = 'depthwise_kernel' if match['part'] == '2' else kernel
        else:
            continue
        found[f'{layer}_{_variable(match, kernel)}'] = name
    return found


# Of transformers and of RF-DETR's own files.
_DINOV2_SCOPE = r'(?:(?:model\.)?backbone\.(?:backbone|model|0\.encoder\.encoder)\.)?'
_DINOV2_EMBEDDINGS = re.compile(
    rf'{_DINOV2_SCOPE}embeddings\.(?P<name>cls_token|position_embeddings|register_tokens)'
)
_DINOV2_LAYER = re.compile(
    rf'{_DINOV2_SCOPE}(?:encoder\.layer\.(?P<block>\d+)\.)?'
    r'(?P<layer>norm[12]|layernorm|embeddings\.patch_embeddings\.projection|layer_scale[12]|'
    r'(?:attention|mlp)\.[\w.]+)\.(?P<variable>weight|bias|lambda1)'
)
# Layer there, by the first names as well -> layer here.
_DINOV2_LAYERS = {
    **{'norm1': 'norm1', 'norm2': 'norm2', 'layer_scale1': 'scale1', 'layer_scale2': 'scale2'},
    **{f'attention.{part[0]}_proj': part for part in ('query', 'key', 'value', 'output')},
    **{f'attention.attention.{part}': part for part in ('query', 'key', 'value')},
    **{'attention.output.dense': 'output', 'mlp.fc1': 'fc1', 'mlp.fc2': 'fc2'},
    **{f'mlp.{part}_proj': part for part in ('gate', 'up', 'down')},
    'mlp.weights_out': 'down',
}
_DINOV2_ENDS = {'layernorm': 'norm', 'embeddings.patch_embeddings.projection': 'patch_embeddings'}


def dinov2(names: Collection[str]) -> dict[str, str]:
    """Returns our name 'block0_query/kernel' -> the name in the file."""
    found = {}
    for name in names:
        if match := _DINOV2_EMBEDDINGS.fullmatch(name):
            found[f'embeddings/{match["name"]}'] = name
        elif match := _DINOV2_LAYER.fullmatch(name):
            block = match['block']
            layer = (_DINOV2_ENDS if block is None else _DINOV2_LAYERS).get(match['layer'])
            if layer is not None:
                scope = '' if block is None else f'block{block}_'
                kind = {'weight': 'kernel', 'lambda1': 'scale'}.get(match['variable'], 'bias')
                if layer.startswith('norm'):
                    kind = _NORM[match['variable']]
                found[f'{scope}{layer}/{kind}'] = name
    return found


# Images of RT-DETR and D-FINE are only divided by 255.
_UNIT = Pixels(mean=(0.0, 0.0, 0.0), std=(255.0, 255.0, 255.0))
RESNET = Format(
    'transformers ResNet',
    'encoder.stages.0.layers.0.layer.0.convolution.weight',
    resnet,
    IMAGENET,
    Options(stride_in_1x1=False, padding=Padding.SYMMETRIC_ALL),
)
RESNET_D = RESNET._replace(
    title='transformers ResNet-D', pixels=_UNIT, first=First('conv1_1_conv/kernel', 'conv1_1_bn')
)
HGNET_V2 = Format(
    'transformers HGNetV2',
    'encoder.stages.0.blocks.0.aggregation.0.convolution.weight',
    hgnet_v2,
    _UNIT,
    Options(),
    first=First('stem1_conv/kernel', 'stem1_bn'),
)
DINOV2 = Format(
    'transformers DINOv2',
    'encoder.layer.0.attention.q_proj.weight',
    dinov2,
    IMAGENET,
    Options(),
    epsilon=1e-6,
    first=First('patch_embeddings/kernel', ''),
)
