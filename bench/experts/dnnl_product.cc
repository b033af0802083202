// SPDX-License-Identifier: Apache-2.0

#include "bench/experts/dnnl_product.h"

#include <cstring>
#include <string>

#include "bench/limits/cold_memory.h"
#include "proto/check.h"

namespace afd::bench {
namespace {

using dnnl::memory;

memory::dims dims_of(size_t rows, size_t columns) {
    return {static_cast<memory::dim>(rows), static_cast<memory::dim>(columns)};
}

memory::data_type result_type(const DnnlProduct::Shape& shape) {
    if (shape.finish != DnnlProduct::Finish::kSums) return memory::data_type::bf16;
    return shape.is_int8 ? memory::data_type::s32 : memory::data_type::f32;
}

dnnl::primitive_attr attributes_of(const DnnlProduct::Shape& shape,
                                   const DnnlProduct::Given& given) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (shape.finish == DnnlProduct::Finish::kSwiglu) {
        dnnl::post_ops steps;
        steps.append_eltwise(1.0f, dnnl::algorithm::eltwise_swish, 1.0f, 0.0f);
        steps.append_binary(dnnl::algorithm::binary_mul, given.factor->get_desc());
        attributes.set_post_ops(steps);
    }
    return attributes;
}

}  // namespace

DnnlProduct::DnnlProduct(const dnnl::engine& engine,
                         const Shape& shape,
                         const void* weight,
                         size_t num_experts,
                         const Given& given) {
    const auto in = shape.is_int8 ? memory::data_type::s8 : memory::data_type::bf16;
    const auto matrix = dims_of(shape.depth, shape.num_outputs);
    const dnnl::matmul::primitive_desc description(
        dnnl::matmul::desc({dims_of(shape.num_rows, shape.depth), in, memory::format_tag::ab},
                           {matrix, in, memory::format_tag::any},
                           {dims_of(shape.num_rows, shape.num_outputs),
                            result_type(shape),
                            memory::format_tag::ab}),
        attributes_of(shape, given),
        engine);
    AFD_ASSERT(std::string(description.impl_info_str()).find("ref") == std::string::npos,
               "oneDNN has only its reference, %s, for this product, which is no peer",
               description.impl_info_str());
    primitive_ = dnnl::matmul(description);
    x_ = given.x != nullptr ? *given.x : memory(description.src_desc(), engine);
    y_ = memory(description.dst_desc(), engine);
    const memory scratch(description.scratchpad_desc(), engine);

    const memory::desc packed = description.weights_desc();
    const size_t bytes = ops::workspace_bytes_of<std::byte>(packed.get_size());
    storage_.reserve(num_experts * bytes);
    std::byte* first = storage_.bytes().data();
    for (size_t i = 0; i < num_experts; ++i) {
        arguments_.push_back({{DNNL_ARG_SRC, x_},
                              {DNNL_ARG_WEIGHTS, memory(packed, engine, first + i * bytes)},
                              {DNNL_ARG_DST, y_},
                              {DNNL_ARG_SCRATCHPAD, scratch}});
        if (given.factor != nullptr) {
            arguments_.back().insert(
                {DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1, *given.factor});
        }
    }
    // [num_outputs, depth] by rows is [depth, num_outputs] by columns.
    memory plain({matrix, in, memory::format_tag::ba}, engine, const_cast<void*>(weight));
    memory& first_packed = arguments_[0].at(DNNL_ARG_WEIGHTS);
    dnnl::stream stream(engine);
    dnnl::reorder(plain, first_packed).execute(stream, plain, first_packed);
    stream.wait();
    for (size_t i = 1; i < num_experts; ++i) std::memcpy(first + i * bytes, first, bytes);
    read_once({first, num_experts * bytes});
}

void DnnlProduct::run(size_t expert, const dnnl::stream& stream) {
    primitive_.execute(stream, arguments_[expert]);
}

}  // namespace afd::bench
