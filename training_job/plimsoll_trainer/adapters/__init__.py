"""Builds a workload from what people already have.

sequential      a list of layers, or a model that is one
trees           tensors in the arguments and results of modules
model_anatomy   where a causal language model is cut into layers
model_parts     its layers, as modules that map a tensor to a tensor
dissection      where it can be cut, found by running it without data
model_copies    its layers, each built alone with fresh weights
tensor_names    its layers and tensors by their names in the model
tensor_plan     how a tensor group shares its layers
sequence_plan   how it splits the sequences between them
causality       whether it predicts the next token without looking at it
text_corpus     real text as tokens
causal_lm       a causal language model of transformers, by its configuration
"""
