"""Builds a workload from what people already have.

sequential        a list of layers, or a model that is one
traced            a model whose own code says how its parts follow each other
any_module        any module that torch.export can capture
torchvision       a classifier of torchvision, by its name
trees             tensors in the arguments and results of modules
without_values    answers to questions about values, where tensors have none
model_tasks       what a model of transformers is trained for, and is called with
model_config      its configuration, as it is given
model_anatomy     where it is cut into layers
model_parts       its layers, as modules that map a tensor to a tensor
block_search      its blocks, found by what depends on what
model_watch       who is called when, and with what
dissection        where it can be cut, found by running it without data
model_copies      its layers, each built alone with fresh weights
tensor_names      its layers and tensors by their names in the model
tensor_plan       how a tensor group shares its layers
sequence_plan     how it splits the sequences between them
causality         whether it predicts the next token without looking at it
position_check    whether it has a row for each position of a sample
losses            of tokens, and of labels
model_layers      its layers as a workload has them
text_corpus       real text as tokens
masked_text       text with words to fill in, or with labels
labelled_images   images with labels, that are made
causal_lm         a causal language model of transformers, by its configuration
encoder           an encoder, likewise
image_classifier  a classifier of images, likewise
"""
