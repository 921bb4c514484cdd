"""The declarations of cpp/python/xla_abi.h against the header that comes with jaxlib."""

import pathlib
import re
import subprocess

import jax.ffi

from tests.support import c
from tests.support.paths import ROOT

# Ours, XLA's, and pairs of fields; a field of ours with the same place and size as XLA's.
STRUCTS = {
    ("Extension", "XLA_FFI_Extension_Base"): "struct_size type next",
    ("Version", "XLA_FFI_Api_Version"): (
        "struct_size extensions:extension_start major:major_version minor:minor_version"
    ),
    ("Metadata", "XLA_FFI_Metadata"): "struct_size version:api_version traits",
    ("MetadataExtension", "XLA_FFI_Metadata_Extension"): "base:extension_base metadata",
    ("ErrorArguments", "XLA_FFI_Error_Create_Args"): (
        "struct_size extensions:extension_start message code:errc"
    ),
    ("Api", "XLA_FFI_Api"): (
        "struct_size extensions:extension_start version:api_version internal:internal_api "
        "create_error:XLA_FFI_Error_Create"
    ),
    ("Buffer", "XLA_FFI_Buffer"): "struct_size extensions:extension_start dtype data rank dims",
    ("Operands", "XLA_FFI_Args"): (
        "struct_size extensions:extension_start count:size types items:args"
    ),
    ("Operands", "XLA_FFI_Rets"): (
        "struct_size extensions:extension_start count:size types items:rets"
    ),
    ("Array", "XLA_FFI_Array"): "dtype count:size data",
    ("Text", "XLA_FFI_ByteSpan"): "data:ptr size:len",
    ("Attributes", "XLA_FFI_Attrs"): (
        "struct_size extensions:extension_start count:size types names items:attrs"
    ),
    ("Call", "XLA_FFI_CallFrame"): (
        "struct_size extensions:extension_start api context:ctx stage arguments:args results:rets "
        "attributes:attrs"
    ),
}
CONSTANTS = {
    "kMajorVersion": "XLA_FFI_API_MAJOR",
    "kMetadataExtension": "XLA_FFI_Extension_Metadata",
    "kBufferOperand": "XLA_FFI_ArgType_BUFFER",
    "kBufferOperand + 0": "XLA_FFI_RetType_BUFFER",
    "kArrayAttribute": "XLA_FFI_AttrType_ARRAY",
    "int(ErrorCode::invalid_argument)": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
    "int(ErrorCode::resource_exhausted)": "XLA_FFI_Error_Code_RESOURCE_EXHAUSTED",
    "int(ErrorCode::internal)": "XLA_FFI_Error_Code_INTERNAL",
    "int(ElementType::s64)": "XLA_FFI_DataType_S64",
    "int(ElementType::f16)": "XLA_FFI_DataType_F16",
    "int(ElementType::bf16)": "XLA_FFI_DataType_BF16",
    "int(ElementType::f32)": "XLA_FFI_DataType_F32",
    "int(ElementType::f64)": "XLA_FFI_DataType_F64",
}


def checks():
    lines = ["#include <cstddef>", '#include "xla/ffi/api/c_api.h"', '#include "python/xla_abi.h"']
    lines.append("using namespace backops::xla;")
    header = pathlib.Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    if "XLA_FFI_Extension_Base" not in header:  # renamed by JAX 0.12 at the latest
        lines.append("using XLA_FFI_Extension_Base = XLA_FFI_InternalExtension;")
    lines.append("static_assert(kMinorVersion <= XLA_FFI_API_MINOR);")
    for (ours, theirs), fields in STRUCTS.items():
        for field in fields.split():
            own, _, other = field.partition(":")
            other = other or own
            lines.append(f"static_assert(offsetof({ours}, {own}) == offsetof({theirs}, {other}));")
            lines.append(f"static_assert(sizeof({ours}::{own}) <= sizeof({theirs}::{other}));")
    lines += [f"static_assert({ours} == {theirs});" for ours, theirs in CONSTANTS.items()]
    return "\n".join(lines) + "\n"


def compile_checks(text):
    command = [c.compiler("c++"), "-std=c++17", "-fsyntax-only", "-x", "c++", "-"]
    command += [f"-I{jax.ffi.include_dir()}", f"-I{ROOT / 'cpp'}"]
    return subprocess.run(command, input=text, capture_output=True, text=True)


def test_declarations_are_those_of_jaxlib():
    done = compile_checks(checks())
    assert done.returncode == 0, done.stderr


def test_every_declared_struct_and_field_is_compared():
    header = (ROOT / "cpp" / "python" / "xla_abi.h").read_text()
    bodies = dict(re.findall(r"^struct (\w+) {\n(.*?)^};", header, re.MULTILINE | re.DOTALL))
    assert set(bodies) == {ours for ours, _ in STRUCTS}
    for (ours, _), compared in STRUCTS.items():
        without_comments = re.sub(r"//.*", "", bodies[ours])
        # A field's name stands before a semicolon or comma, or is that of a function pointer.
        declared = re.findall(r"(\w+)[;,]|\(\*(\w+)\)", without_comments)
        own = [field.partition(":")[0] for field in compared.split()]
        assert own == [field or function for field, function in declared], ours


def test_a_wrong_declaration_would_be_seen():
    wrong = checks().replace("offsetof(Buffer, rank)", "offsetof(Buffer, data)")
    assert "static assertion failed" in compile_checks(wrong).stderr
