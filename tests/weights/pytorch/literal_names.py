"""Some names of weights of detection transformers, written out: variables here, and there."""

_HYBRID = """
encoder/input_proj_0/conv/kernel model.encoder_input_proj.0.0.weight
encoder/input_proj_1/norm/moving_variance model.encoder_input_proj.1.1.running_var
encoder/aifi_0_layers_0/self_attn/q_proj/kernel
  model.encoder.aifi.0.layers.0.self_attn.q_proj.weight
encoder/aifi_0_layers_0/self_attn/o_proj/bias model.encoder.aifi.0.layers.0.self_attn.o_proj.bias
encoder/aifi_0_layers_0/final_layer_norm/gamma model.encoder.aifi.0.layers.0.final_layer_norm.weight
encoder/lateral_convs_0/conv/kernel model.encoder.lateral_convs.0.conv.weight
encoder/lateral_convs_1/norm/moving_mean model.encoder.lateral_convs.1.norm.running_mean
encoder/fpn_blocks_0/conv1/conv/kernel model.encoder.fpn_blocks.0.conv1.conv.weight
encoder/pan_blocks_1/conv2/norm/gamma model.encoder.pan_blocks.1.conv2.norm.weight
queries/class_contents model.denoising_class_embed.weight
queries/cells_0/output/kernel model.enc_output.0.weight
queries/cells_0/norm/gamma model.enc_output.1.weight
queries/cells_0/score/bias model.enc_score_head.bias
queries/cells_0/bbox/layers_0/kernel model.enc_bbox_head.layers.0.weight
queries/cells_0/bbox/layers_1/kernel model.enc_bbox_head.layers.1.weight
decoder/layers_0/self_attn/k_proj/kernel model.decoder.layers.0.self_attn.k_proj.weight
decoder/layers_1/self_attn_layer_norm/beta model.decoder.layers.1.self_attn_layer_norm.bias
decoder/layers_0/encoder_attn/sampling_offsets/kernel
  model.decoder.layers.0.encoder_attn.sampling_offsets.weight
decoder/layers_1/encoder_attn/attention_weights/bias
  model.decoder.layers.1.encoder_attn.attention_weights.bias
decoder/layers_1/final_layer_norm/gamma model.decoder.layers.1.final_layer_norm.weight
decoder/query_pos_head/layers_0/kernel model.decoder.query_pos_head.layers.0.weight
decoder/query_pos_head/layers_1/bias model.decoder.query_pos_head.layers.1.bias
decoder/class_embed_0/kernel model.decoder.class_embed.0.weight
decoder/class_embed_1/bias model.decoder.class_embed.1.bias
decoder/bbox_embed_0/layers_0/kernel model.decoder.bbox_embed.0.layers.0.weight
decoder/bbox_embed_1/layers_1/kernel model.decoder.bbox_embed.1.layers.1.weight
"""
_RT_DETR = f"""{_HYBRID}
encoder/decoder_input_proj_0/conv/kernel model.decoder_input_proj.0.0.weight
encoder/decoder_input_proj_1/norm/beta model.decoder_input_proj.1.1.bias
encoder/aifi_0_layers_0/mlp/fc1/kernel model.encoder.aifi.0.layers.0.mlp.fc1.weight
encoder/fpn_blocks_0/bottlenecks_0/conv1/conv/kernel
  model.encoder.fpn_blocks.0.bottlenecks.0.conv1.conv.weight
encoder/fpn_blocks_1/bottlenecks_1/conv2/norm/gamma
  model.encoder.fpn_blocks.1.bottlenecks.1.conv2.norm.weight
encoder/downsample_convs_0/conv/kernel model.encoder.downsample_convs.0.conv.weight
encoder/downsample_convs_1/norm/gamma model.encoder.downsample_convs.1.norm.weight
decoder/layers_0/encoder_attn/value_proj/kernel
  model.decoder.layers.0.encoder_attn.value_proj.weight
decoder/layers_1/encoder_attn/output_proj/bias model.decoder.layers.1.encoder_attn.output_proj.bias
decoder/layers_1/encoder_attn_layer_norm/gamma model.decoder.layers.1.encoder_attn_layer_norm.weight
decoder/layers_0/mlp/fc1/kernel model.decoder.layers.0.mlp.fc1.weight
decoder/layers_1/mlp/fc2/bias model.decoder.layers.1.mlp.fc2.bias
"""
_LISTS = {
    # With two attended maps, and five for the decoder.
    'rt_detr': f"""{_RT_DETR}
encoder/aifi_1_layers_0/self_attn/v_proj/kernel
  model.encoder.aifi.1.layers.0.self_attn.v_proj.weight
encoder/aifi_1_layers_0/mlp/fc2/kernel model.encoder.aifi.1.layers.0.mlp.fc2.weight
encoder/decoder_input_proj_3/conv/kernel model.decoder_input_proj.3.0.weight
encoder/decoder_input_proj_4/conv/kernel model.decoder_input_proj.4.0.weight
encoder/decoder_input_proj_4/norm/gamma model.decoder_input_proj.4.1.weight
""",
    'rt_detr_v2': f"""{_RT_DETR}
decoder/layers_0/encoder_attn/num_points_scale model.decoder.layers.0.encoder_attn.n_points_scale
decoder/layers_1/encoder_attn/num_points_scale model.decoder.layers.1.encoder_attn.n_points_scale
""",
    'd_fine': f"""{_HYBRID}
encoder/aifi_0_layers_0/mlp/fc1/kernel model.encoder.aifi.0.layers.0.mlp.layers.0.weight
encoder/aifi_0_layers_0/mlp/fc2/kernel model.encoder.aifi.0.layers.0.mlp.layers.1.weight
encoder/fpn_blocks_0/csp_rep1/conv1/conv/kernel
  model.encoder.fpn_blocks.0.csp_rep1.conv1.conv.weight
encoder/fpn_blocks_1/csp_rep2/bottlenecks_0/conv2/norm/gamma
  model.encoder.fpn_blocks.1.csp_rep2.bottlenecks.0.conv2.norm.weight
encoder/pan_blocks_0/conv4/norm/moving_mean model.encoder.pan_blocks.0.conv4.norm.running_mean
encoder/downsample_convs_0/conv1/conv/kernel model.encoder.downsample_convs.0.conv1.conv.weight
encoder/downsample_convs_1/conv2/conv/depthwise_kernel
  model.encoder.downsample_convs.1.conv2.conv.weight
decoder/layers_0/encoder_attn/num_points_scale model.decoder.layers.0.encoder_attn.num_points_scale
decoder/layers_0/gateway/gate/kernel model.decoder.layers.0.gateway.gate.weight
decoder/layers_1/gateway/norm/gamma model.decoder.layers.1.gateway.norm.weight
decoder/layers_0/mlp/fc1/kernel model.decoder.layers.0.mlp.layers.0.weight
decoder/layers_1/mlp/fc2/kernel model.decoder.layers.1.mlp.layers.1.weight
decoder/pre_bbox_head/layers_1/kernel model.decoder.pre_bbox_head.layers.1.weight
decoder/lqe_layers_0/reg_conf/layers_0/kernel model.decoder.lqe_layers.0.reg_conf.layers.0.weight
decoder/lqe_layers_1/reg_conf/layers_1/kernel model.decoder.lqe_layers.1.reg_conf.layers.1.weight
""",
    'rf_detr': """
encoder/conv1/conv/kernel model.backbone.projector.projector_layer.conv1.conv.weight
encoder/conv2/norm/gamma model.backbone.projector.projector_layer.conv2.norm.weight
encoder/bottlenecks_0_conv1/conv/kernel
  model.backbone.projector.projector_layer.bottlenecks.0.conv1.conv.weight
encoder/bottlenecks_0_conv2/norm/beta
  model.backbone.projector.projector_layer.bottlenecks.0.conv2.norm.bias
encoder/layer_norm/gamma model.backbone.projector.layer_norm.weight
queries/contents model.query_feat.weight
queries/boxes model.reference_point_embed.weight
queries/cells_0/output/kernel model.enc_output.0.weight
queries/cells_1/output/bias model.enc_output.1.bias
queries/cells_0/norm/gamma model.enc_output_norm.0.weight
queries/cells_1/score/kernel model.enc_out_class_embed.1.weight
queries/cells_1/bbox/layers_0/kernel model.enc_out_bbox_embed.1.layers.0.weight
decoder/layers_0/self_attn/q_proj/kernel model.decoder.layers.0.self_attn.q_proj.weight
decoder/layers_1/self_attn_layer_norm/gamma model.decoder.layers.1.self_attn_layer_norm.weight
decoder/layers_0/encoder_attn/value_proj/kernel model.decoder.layers.0.cross_attn.value_proj.weight
decoder/layers_1/encoder_attn/sampling_offsets/bias
  model.decoder.layers.1.cross_attn.sampling_offsets.bias
decoder/layers_0/encoder_attn_layer_norm/gamma model.decoder.layers.0.cross_attn_layer_norm.weight
decoder/layers_1/mlp/fc1/kernel model.decoder.layers.1.mlp.fc1.weight
decoder/layers_1/final_layer_norm/gamma model.decoder.layers.1.layer_norm.weight
decoder/layernorm/gamma model.decoder.layernorm.weight
decoder/ref_point_head/layers_1/kernel model.decoder.ref_point_head.layers.1.weight
decoder/class_embed_0/kernel class_embed.weight
decoder/bbox_embed_0/layers_0/kernel bbox_embed.layers.0.weight
""",
    # With learned positions.
    'detr': """
encoder/row_embeddings model.position_embedding.row_embeddings.weight
encoder/column_embeddings model.position_embedding.column_embeddings.weight
encoder/input_projection/kernel model.input_projection.weight
encoder/layers_0/self_attn/q_proj/kernel model.encoder.layers.0.self_attn.q_proj.weight
encoder/layers_0/mlp/fc2/bias model.encoder.layers.0.mlp.fc2.bias
encoder/layers_0/final_layer_norm/gamma model.encoder.layers.0.final_layer_norm.weight
queries/positions model.query_position_embeddings.weight
decoder/layers_0/self_attn/v_proj/kernel model.decoder.layers.0.self_attn.v_proj.weight
decoder/layers_1/encoder_attn/k_proj/kernel model.decoder.layers.1.encoder_attn.k_proj.weight
decoder/layers_1/encoder_attn_layer_norm/gamma model.decoder.layers.1.encoder_attn_layer_norm.weight
decoder/layers_0/mlp/fc1/kernel model.decoder.layers.0.mlp.fc1.weight
decoder/layernorm/beta model.decoder.layernorm.bias
decoder/class_embed_0/kernel class_labels_classifier.weight
decoder/bbox_embed_0/layers_0/kernel bbox_predictor.layers.0.weight
decoder/bbox_embed_0/layers_1/bias bbox_predictor.layers.1.bias
""",
}
# Kind -> {name here: name there}.
NAMES = {
    kind: dict(zip(text.split()[::2], text.split()[1::2], strict=True))
    for kind, text in _LISTS.items()
}
# What the small models of the tests have besides, so that the lists have all of it.
CHANGES = {
    'rt_detr': {'encode_proj_layers': [1, 2], 'num_feature_levels': 5},
    'detr': {'position_embedding_type': 'learned'},
}
