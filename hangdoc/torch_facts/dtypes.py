"""Types of the elements of tensors, as `torch.dtype` spells them (c10/core/ScalarType.h, torch 2.13)."""

BY_NUMBER = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128",
    "bool", "qint8", "quint8", "qint32", "bfloat16", "quint4x2", "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8",
    "bits16", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16", "uint32", "uint64",
    "uint1", "uint2", "uint3", "uint4", "uint5", "uint6", "uint7", "int1", "int2", "int3", "int4", "int5", "int6", "int7",
    "float8_e8m0fnu", "float4_e2m1fn_x2",
)  # fmt: skip
"""By the number that C++ has for it, which older versions also have."""
COMMON = frozenset({
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128", "bool", "bfloat16",
    "float8_e5m2", "float8_e4m3fn",
})  # fmt: skip
"""Those that training uses: a tensor that is looked for in memory has one of them."""
BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
"""Of a number, for the types in which models are trained."""
SHORT_NAMES = {
    "bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32", "tf32": "float32",
    "fp64": "float64", "double": "float64", "fp8": "float8_e4m3fn",
}  # fmt: skip
"""Other names that options and configurations have for them."""
BY_SCALAR_TYPE = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Byte": "uint8", "Char": "int8",
    "Short": "int16", "Int": "int32", "Long": "int64", "Bool": "bool", "ComplexHalf": "complex32", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}  # fmt: skip
"""By the name that C++ has for it."""
