// SPDX-License-Identifier: Apache-2.0

#include "bench/dnnl_experts.h"

#include <cstdint>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>
#include <vector>

// Of the OpenMP library that oneDNN runs on; declared here, so that no compiler needs OpenMP.
extern "C" void omp_set_num_threads(int num_threads);

namespace afd::bench {
namespace {

using dnnl::memory;

// One product of [num_rows, depth] rows with every expert's [depth, num_outputs] matrix.
struct Product {
    dnnl::matmul::primitive_desc description;
    dnnl::matmul primitive;
    memory x;
    memory y;
    memory scratch;
    std::vector<memory> weights;

    Product(const dnnl::engine& engine, const DnnlExperts::Shape& s, size_t depth, size_t outputs) {
        const bool is_int8 = s.format == ops::WeightFormat::kInt8;
        const auto in = is_int8 ? memory::data_type::s8 : memory::data_type::bf16;
        const auto out = is_int8 ? memory::data_type::s32 : memory::data_type::bf16;
        const auto m = static_cast<memory::dim>(s.num_rows);
        const auto k = static_cast<memory::dim>(depth);
        const auto n = static_cast<memory::dim>(outputs);
        dnnl::primitive_attr attributes;
        attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        description =
            dnnl::matmul::primitive_desc(dnnl::matmul::desc({{m, k}, in, memory::format_tag::ab},
                                                            {{k, n}, in, memory::format_tag::any},
                                                            {{m, n}, out, memory::format_tag::ab}),
                                         attributes,
                                         engine);
        primitive = dnnl::matmul(description);
        x = filled(description.src_desc(), engine);
        y = filled(description.dst_desc(), engine);
        scratch = memory(description.scratchpad_desc(), engine);
        for (size_t i = 0; i < s.num_experts; ++i) {
            weights.push_back(filled(description.weights_desc(), engine));
        }
    }

    // Small numbers of either type.
    static memory filled(const memory::desc& description, const dnnl::engine& engine) {
        memory values(description, engine);
        std::memset(values.get_data_handle(), 0x3c, description.get_size());
        return values;
    }

    void run(size_t expert, const dnnl::stream& stream) {
        primitive.execute(stream,
                          {{DNNL_ARG_SRC, x},
                           {DNNL_ARG_WEIGHTS, weights[expert]},
                           {DNNL_ARG_DST, y},
                           {DNNL_ARG_SCRATCHPAD, scratch}});
    }
};

}  // namespace

struct DnnlExperts::State {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    unsigned num_threads;
    Product gate_up;
    Product down;

    explicit State(const Shape& s)
        : num_threads(s.num_threads),
          gate_up(engine, s, s.hidden, 2 * s.intermediate),
          down(engine, s, s.intermediate, s.hidden) {}
};

std::unique_ptr<DnnlExperts> DnnlExperts::make(const Shape& shape) {
    // The library decides by the number of threads how it lays weights out.
    omp_set_num_threads(static_cast<int>(shape.num_threads));
    try {
        return std::unique_ptr<DnnlExperts>(new DnnlExperts(std::make_unique<State>(shape)));
    } catch (const dnnl::error&) {
        return nullptr;
    }
}

DnnlExperts::DnnlExperts(std::unique_ptr<State> state) : state_(std::move(state)) {}

DnnlExperts::~DnnlExperts() = default;

void DnnlExperts::run(size_t expert) {
    omp_set_num_threads(static_cast<int>(state_->num_threads));
    state_->gate_up.run(expert, state_->stream);
    state_->down.run(expert, state_->stream);
    state_->stream.wait();
}

}  // namespace afd::bench
