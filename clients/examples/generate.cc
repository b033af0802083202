// SPDX-License-Identifier: Apache-2.0
//
// The smallest client: streams one generation from a running afdd to standard output.
//
//   example_generate "Once upon a time" [instance]
#include <iostream>
#include <string>

#include "clients/afd_client.h"

namespace {

afd::Result<> run(const std::string& prompt, const std::string& instance) {
    AFD_ASSIGN(const afd::client::Endpoint endpoint, afd::client::resolve_endpoint("", instance));
    AFD_ASSIGN(afd::client::Client client, afd::client::Client::connect(endpoint));

    afd::client::Generate request;
    request.set_text(prompt);
    request.set_max_tokens(64);
    AFD_ASSIGN(const afd::client::Generation generation,
               client.generate(request, [](const afd::client::Chunk& chunk) {
                   std::cout << chunk.text() << std::flush;
                   return true;  // False would cancel the request.
               }));
    std::cout << "\n" << generation.finished.num_output_tokens() << " tokens\n";
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2 || argc > 3) {
        std::cerr << "usage: " << argv[0] << " PROMPT [INSTANCE]\n";
        return 2;
    }
    const afd::Result<> result = run(argv[1], argc == 3 ? argv[2] : "default");
    if (result.ok()) return 0;
    std::cerr << "error: " << result.error().message << "\n";
    return 1;
}
