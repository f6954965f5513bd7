"""Names of the weights of torchvision's MobileNet v3, as layers of our backbone.

Files have the network as a classifier (`features.4.block.1.0.weight`), under the pyramid of Faster
R-CNN (`backbone.body.4...`), or cut in two in the block whose expansion is a map of SSDLite
(`backbone.features.0.4...`, `backbone.features.1.0...`).
"""

import re
from collections import defaultdict
from collections.abc import Collection

from object_detection.models.backbones.resnet_v1 import Options
from object_detection.weights.third_party_names import IMAGENET, First, Format, Pixels

# The block that SSDLite cuts behind its expansion, in the numbers of a classifier.
_CUT = 13
_WHOLE = re.compile(r'(?:backbone\.body|features)\.(?P<number>\d+)\.(?P<rest>.+)')
_HALF = re.compile(r'backbone\.features\.(?P<half>[01])\.(?P<number>\d+)\.(?P<rest>.+)')
_LAYER = re.compile(
    r'(?P<number>\d+)\.(?:block\.(?P<part>\d+)\.)?(?P<layer>0|1|fc1|fc2)\.(?P<variable>\w+)'
)
_SQUEEZE = {'fc1': 'squeeze', 'fc2': 'excite'}
_NORM = {
    **{'weight': 'gamma', 'bias': 'beta'},
    **{'running_mean': 'moving_mean', 'running_var': 'moving_variance'},
}


def translate(names: Collection[str]) -> dict[str, str]:
    """Returns our name 'expanded_conv_3_depthwise/depthwise_kernel' -> the name in the file."""
    blocks: defaultdict = defaultdict(list)
    for name in names:
        match = _LAYER.fullmatch(_as_classifier(name))
        if match:
            blocks[int(match['number'])].append((match, name))
    found = {}
    for number, matches in blocks.items():
        if matches[0][0]['part'] is None:
            scopes = {None: 'first_conv' if number == 0 else 'last_conv'}
        else:
            scopes = _parts(number - 1, [match for match, _ in matches])
        for match, name in matches:
            scope, layer, variable = scopes.get(match['part']), match['layer'], match['variable']
            if layer in _SQUEEZE:
                kind = {'weight': 'kernel'}.get(variable, variable)
                found[f'{scope}_{_SQUEEZE[layer]}/{kind}'] = name
            elif layer == '1':
                if variable in _NORM:
                    found[f'{scope}_bn/{_NORM[variable]}'] = name
            elif variable == 'weight':
                is_depthwise = scope.endswith('_depthwise')
                found[f'{scope}/{"depthwise_" if is_depthwise else ""}kernel'] = name
    # Other networks have a convolution of this name, too.
    return found if 'expanded_conv_0_project/kernel' in found else {}


def _as_classifier(name: str) -> str:
    """Returns the name of a variable as that of a classifier, from the number of the block on."""
    if match := _WHOLE.fullmatch(name):
        return f'{match["number"]}.{match["rest"]}'
    match = _HALF.fullmatch(name)
    if match is None:
        return ''
    is_second = match['half'] == '1'
    number, rest = int(match['number']) + _CUT * is_second, match['rest']
    if number == _CUT:  # The expansion alone, or all but it.
        rest = f'block.{rest}' if is_second else f'block.0.{rest}'
    return f'{number}.{rest}'


def _parts(block: int, matches: list[re.Match]) -> dict[str, str]:
    """Returns the number of a part of a block -> the name of its layers."""
    parts = sorted({match['part'] for match in matches}, key=int)
    squeezed = {match['part'] for match in matches if match['layer'] in _SQUEEZE}
    *inner, last = [part for part in parts if part not in squeezed]
    scope = f'expanded_conv_{block}'
    kinds = dict(zip(inner[::-1], ('depthwise', 'expand'), strict=False)) | {last: 'project'}
    return {part: f'{scope}_{kind}' for part, kind in kinds.items()} | dict.fromkeys(
        squeezed, scope
    )


MOBILENET_V3 = Format(
    'torchvision MobileNet v3',
    'features.1.block.0.0.weight',
    translate,
    IMAGENET,
    Options(),
    epsilon=1e-3,
    first=First('first_conv/kernel', 'first_conv_bn'),
)
# Faster R-CNN has PyTorch's epsilon.
MOBILENET_V3_OF_PYRAMID = MOBILENET_V3._replace(epsilon=1e-5)
# SSDLite sees images in -1..1.
MOBILENET_V3_OF_SSD = MOBILENET_V3._replace(
    pixels=Pixels(mean=(127.5, 127.5, 127.5), std=(127.5, 127.5, 127.5))
)
