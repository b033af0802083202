// SPDX-License-Identifier: Apache-2.0
//
// Layouts that calls share, and rows that are handed out before they are reduced.
//
// Method: every part of the registry within one process, with the kernels' part of its format, over
// the layer of the test matrix. Oracle: the same call by itself, bit for bit.

#include <gtest/gtest.h>

#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/plan/remote_capabilities.h"
#include "tests/ops/fused_moe/example_experts.h"
#include "tests/ops/fused_moe/moe_matrix.h"

namespace afd::ops {
namespace {

using test::kMatrixHidden;
using test::MatrixCase;

const test::MatrixModel& model() {
    static const test::MatrixModel model(ExpertQuantisation::kNone);
    return model;
}

// A layer of one pair, and its calls.
struct Layer {
    SerialParallel serial;
    test::MatrixShard shard = model().whole();
    std::unique_ptr<PrepareFinalize> prepare_finalize;
    std::unique_ptr<Experts> experts;
    FusedMoe moe;
    test::RandomMatrix x = test::matrix_tokens();

    Layer(const PrepareFinalizeEntry& dispatch, const ExpertsEntry& part, FusedMoeConfig config)
        : prepare_finalize(dispatch.make(config, serial)),
          experts(part.make(shard.setup())),
          moe(FusedMoe::compose(*prepare_finalize, *experts, config, serial).value()) {}

    std::vector<Bf16> apply(const MoeInput& input) {
        std::vector<Bf16> out(input.num_tokens * kMatrixHidden);
        const auto done =
            moe.apply(input, make_rows(out.data(), size_t{input.num_tokens}, kMatrixHidden));
        EXPECT_TRUE(done.ok()) << done.error().message;
        return out;
    }
    std::vector<Bf16> finish(MoeTicket&& ticket) {
        const size_t num_tokens = ticket.input().num_tokens;
        std::vector<Bf16> out(num_tokens * kMatrixHidden);
        const auto done =
            moe.finish(std::move(ticket), make_rows(out.data(), num_tokens, kMatrixHidden));
        EXPECT_TRUE(done.ok()) << done.error().message;
        return out;
    }
};

// The parts within one process, each with bf16 kernels.
std::vector<MoePair> local_pairs() {
    std::vector<MoePair> pairs;
    for (const MoePair& pair : moe_pairs()) {
        const FusedMoeConfig config = test::matrix_config(ExpertQuantisation::kNone);
        const bool is_kernel = pair.experts->capability->name.ends_with("_bf16");
        if (!is_kernel || pair.prepare_finalize->make == nullptr) continue;
        if (check_composition(*pair.prepare_finalize, *pair.experts, config).ok()) {
            pairs.push_back(pair);
        }
    }
    EXPECT_EQ(pairs.size(), 3u);
    return pairs;
}

FusedMoeConfig config_with(size_t num_kept_layouts) {
    FusedMoeConfig config = test::matrix_config(ExpertQuantisation::kNone);
    config.num_micro_batches = 2;
    config.num_kept_layouts = num_kept_layouts;
    return config;
}

// The ids of a case in one dtype.
struct Ids {
    IdDtype dtype;
    std::vector<int32_t> narrow;
    std::vector<int64_t> wide;

    Ids(const MatrixCase& c, IdDtype of)
        : dtype(of), narrow(c.ids), wide(c.ids.begin(), c.ids.end()) {}

    void put_into(MoeInput& input) const {
        const bool is_int64 = dtype == IdDtype::kInt64;
        input.topk_ids = is_int64 ? nullptr : narrow.data();
        input.topk_ids_int64 = is_int64 ? wide.data() : nullptr;
    }
    MoeInput input(const MatrixCase& c, const test::RandomMatrix& x) const {
        MoeInput input = c.input(x);
        put_into(input);
        return input;
    }
};

// With ids of either dtype: int64 ones get to the part in an array of the driver.
class DispatchLayoutOfIds : public testing::TestWithParam<IdDtype> {
  protected:
    static FusedMoeConfig config() {
        FusedMoeConfig config = config_with(1);
        config.topk_indices_dtype = GetParam();
        return config;
    }
};

INSTANTIATE_TEST_SUITE_P(Dtypes,
                         DispatchLayoutOfIds,
                         testing::Values(IdDtype::kInt32, IdDtype::kInt64),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

// Goal: a layout serves other layers, other rows and weights, and two tickets at once.
TEST_P(DispatchLayoutOfIds, CallsWithTheSameIdsShareOne) {
    const MatrixCase c(33, 4, test::Routing::kZipf);
    const MatrixCase others(7, 8, test::Routing::kUniform);
    const Ids ids(c, GetParam());
    for (const MoePair& pair : local_pairs()) {
        Layer layer(*pair.prepare_finalize, *pair.experts, config());
        MoeInput first = ids.input(c, layer.x);
        first.ids_generation = 7;
        MoeInput second = first;
        second.layer_id = 0;
        second.x = layer.x.rows().slice(100, 100);
        const std::vector<float> weights(c.weights.rbegin(), c.weights.rend());
        second.topk_weights = weights.data();
        const std::vector<Bf16> want_first = layer.apply(first);
        const std::vector<Bf16> want_second = layer.apply(second);

        MoeTicket ticket = layer.moe.start(first, 0).value();
        const DispatchLayout layout = layer.moe.share_layout(ticket).value();
        second.layout = &layout;
        MoeTicket other = layer.moe.start(second, 1).value();
        EXPECT_EQ(layer.finish(std::move(ticket)), want_first);
        EXPECT_EQ(layer.finish(std::move(other)), want_second);
        // After its first ticket, and while calls with other ids go on.
        EXPECT_NE(layer.apply(Ids(others, GetParam()).input(others, layer.x)), std::vector<Bf16>());
        EXPECT_EQ(layer.apply(second), want_second);
    }
}

TEST_P(DispatchLayoutOfIds, ACallThatDiffersIsRefusedByTheFirstFieldThatDoes) {
    const MatrixCase c(33, 4, test::Routing::kZipf);
    const Ids ids(c, GetParam());
    const Ids other_ids(MatrixCase(33, 4, test::Routing::kUniform), GetParam());
    for (const MoePair& pair : local_pairs()) {
        Layer layer(*pair.prepare_finalize, *pair.experts, config());
        MoeInput input = ids.input(c, layer.x);
        const MoeTicket unnamed = layer.moe.start(input, 0).value();
        EXPECT_EQ(layer.moe.share_layout(unnamed).error().message,
                  "ids_generation is 0; a layout is shared by calls that name the generation of "
                  "their topk_ids");
        input.ids_generation = 7;
        MoeTicket ticket = layer.moe.start(input, 1).value();
        const DispatchLayout layout = layer.moe.share_layout(ticket).value();
        layer.finish(std::move(ticket));
        input.layout = &layout;
        const auto reason = [&](const auto& change) {
            MoeInput changed = input;
            change(changed);
            const Result<MoeTicket> started = layer.moe.start(changed, 1);
            return started.ok() ? std::string("ok") : started.error().message;
        };
        const auto made_for = [](const char* field, int have, int wanted) {
            return "the layout was made for " + std::string(field) + " " + std::to_string(have) +
                   "; this call has " + std::to_string(wanted) + ", so it needs one of its own";
        };
        EXPECT_EQ(reason([](MoeInput&) {}), "ok");
        EXPECT_EQ(reason([&](MoeInput& i) { other_ids.put_into(i); }),
                  "the layout was made for other topk_ids; this call needs one of its own");
        EXPECT_EQ(reason([](MoeInput& i) { i.ids_generation = 8; }),
                  made_for("ids_generation", 7, 8));
        EXPECT_EQ(reason([](MoeInput& i) { i.placement_epoch = 3; }),
                  made_for("placement_epoch", 0, 3));
        EXPECT_EQ(reason([](MoeInput& i) { i.num_tokens = 32; }), made_for("num_tokens", 33, 32));
        EXPECT_EQ(reason([](MoeInput& i) { i.top_k = 3; }), made_for("top_k", 4, 3));
        EXPECT_EQ(reason([](MoeInput& i) { i.num_shared = 0; }), made_for("num_shared", 1, 0));

        Layer stranger(*pair.prepare_finalize, *pair.experts, config());
        EXPECT_EQ(stranger.moe.start(input, 0).error().message,
                  "the layout is not one of this layer's " +
                      std::string(pair.prepare_finalize->capability->name));
    }
}

// Kept layouts take what num_kept_layouts reserves, and give it back.
TEST(DispatchLayout, LayoutsThatAreKeptAreCounted) {
    const MatrixCase c(7, 4, test::Routing::kUniform);
    for (const MoePair& pair : local_pairs()) {
        Layer layer(*pair.prepare_finalize, *pair.experts, config_with(0));
        MoeInput input = c.input(layer.x);
        input.ids_generation = 1;
        std::vector<DispatchLayout> kept;
        for (const uint32_t micro_batch : {0u, 1u}) {
            MoeTicket ticket = layer.moe.start(input, micro_batch).value();
            kept.push_back(layer.moe.share_layout(ticket).value());
            layer.finish(std::move(ticket));
            if (kept.size() == 1) continue;
            const Result<MoeTicket> refused = layer.moe.start(input, 0);
            ASSERT_FALSE(refused.ok());
            EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
            EXPECT_EQ(refused.error().message,
                      "all 2 layouts are in use, and num_kept_layouts is 0; drop one that is kept, "
                      "or raise it");
        }
        kept.pop_back();
        EXPECT_TRUE(layer.moe.start(input, 0).ok());
    }
}

// Goal: what the framework would have summed comes out whole: its own reduction of the deferred
// rows gives the bits of finish(), and so does a caller's own loop.
TEST(DeferredFinalize, TheFrameworksReductionOfDeferredRowsGivesTheSameBits) {
    SerialParallel serial;
    for (const MoePair& pair : local_pairs()) {
        Layer layer(*pair.prepare_finalize, *pair.experts, config_with(0));
        for (const MatrixCase& c : test::matrix_cases()) {
            const std::vector<Bf16> want = layer.apply(c.input(layer.x));
            const MoeTicket ticket = layer.moe.start(c.input(layer.x), 1).value();
            const DeferredRows rows = layer.moe.defer(ticket).value();
            std::vector<Bf16> out(want.size());
            top_k_weight_and_reduce(WeightAndReduceKind::kNaiveBatched)
                .apply(rows.output,
                       rows.input,
                       test::kMatrixExperts,
                       rows.row_index,
                       make_rows(out.data(), size_t{c.num_tokens}, kMatrixHidden),
                       serial);
            ASSERT_EQ(out, want) << pair.prepare_finalize->capability->name << ": " << c.name();
        }
    }
}

TEST(DeferredFinalize, ACallersOwnLoopNeedsTheIndexAndTheWeightsOnly) {
    const MatrixCase c(33, 4, test::Routing::kZipf);
    for (const MoePair& pair : local_pairs()) {
        Layer layer(*pair.prepare_finalize, *pair.experts, config_with(0));
        const std::vector<Bf16> want = layer.apply(c.input(layer.x));
        const MoeTicket ticket = layer.moe.start(c.input(layer.x), 0).value();
        const DeferredRows rows = layer.moe.defer(ticket).value();
        const size_t num_slots = rows.input.num_slots();
        for (size_t token = 0; token < c.num_tokens; ++token) {
            for (size_t column = 0; column < kMatrixHidden; ++column) {
                float sum = 0.0f;
                for (size_t k = 0; k < num_slots; ++k) {
                    const int32_t row = rows.row_index[token * num_slots + k];
                    if (row < 0) continue;
                    const float weight =
                        k < c.top_k ? rows.input.topk_weights[token * c.top_k + k] : 1.0f;
                    const float product =
                        to_float(rows.output.rows.row(static_cast<size_t>(row))[column]) * weight;
                    sum = sum + product;
                }
                ASSERT_EQ(from_float(sum).bits, want[token * kMatrixHidden + column].bits);
            }
        }
    }
}

// A part that keeps the defaults of PrepareFinalize, as those between processes do.
class Remote final : public PrepareFinalize {
  public:
    const PrepareFinalizeCapability& capability() const override { return kAfdTwoPhaseCapability; }
    Result<Ticket> prepare_async(const MoeInput&, uint32_t slot) override {
        return Ticket(this, slot, 1);
    }
    bool ready(const Ticket&) const override { return true; }
    Activations activations(const Ticket&) const override { return RemoteActivations{}; }
    Result<> finalize_async(const Ticket&, const ExpertsOutput&) override { return {}; }
    bool finalized(const Ticket&) const override { return true; }
    Result<> finalize(Ticket&& ticket, const TopKWeightAndReduce&, Rows<Bf16>, Parallel&) override {
        ticket.release();
        return {};
    }
    void cancel(uint32_t, uint64_t) override {}
};

TEST(DeferredFinalize, PartsThatCannotRefuseWithTheirReason) {
    SerialParallel serial;
    const test::RandomMatrix x = test::matrix_tokens();
    const MatrixCase c(7, 4, test::Routing::kUniform);
    const FusedMoeConfig config = test::matrix_config(ExpertQuantisation::kNone);
    Remote remote;
    RemoteExperts workers(*find_experts("grouped_bf16").value()->capability);
    FusedMoe moe = FusedMoe::compose(remote, workers, config, serial).value();
    const MoeTicket ticket = moe.start(c.input(x), 0).value();
    EXPECT_EQ(moe.defer(ticket).error().message,
              "afd_two_phase combines while the rows come back; it has no rows to hand out");
    EXPECT_EQ(moe.share_layout(ticket).error().message,
              "afd_two_phase does not share layouts; every call lays out its rows itself");
    DispatchLayout layout;
    MoeInput input = c.input(x);
    input.layout = &layout;
    EXPECT_EQ(moe.start(input, 0).error().message,
              "afd_two_phase does not share layouts; layout must not be given");
    FusedMoeConfig keeping = config;
    keeping.num_kept_layouts = 2;
    EXPECT_EQ(check(kAfdTwoPhaseCapability, keeping).error().message,
              "afd_two_phase does not share layouts; num_kept_layouts is 2 and must be 0");

    Layer reducing(*find_prepare_finalize("local").value(), test::kExampleExperts, config);
    const MoeTicket reduced = reducing.moe.start(c.input(x), 0).value();
    EXPECT_EQ(reducing.moe.defer(reduced).error().message,
              "example weights and sums its rows itself; it has none to hand out");

    FusedMoeConfig parts = config;
    parts.row_fraction = 0.01;
    parts.overflow = RowOverflow::kChunk;
    Layer chunked(
        *find_prepare_finalize("local").value(), *find_experts("grouped_bf16").value(), parts);
    const MoeTicket first_part = chunked.moe.start(c.input(x), 0).value();
    const std::string reason =
        "the call's 7 tokens go through in several parts, the first of 3; only a whole call has "
        "one layout";
    EXPECT_EQ(chunked.moe.defer(first_part).error().message, reason);
    EXPECT_EQ(chunked.moe.share_layout(first_part).error().message, reason);
}

}  // namespace
}  // namespace afd::ops
