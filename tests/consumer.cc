#include <engine/communicator.h>

#include <cstdio>
#include <vector>

int main() {
  auto options = ringpipe::CommunicatorOptions::FromProcess();
  if (!options.ok()) {
    std::puts(options.status().ToString().c_str());
    return 1;
  }
  auto communicator = ringpipe::Communicator::Create(*options);
  if (!communicator.ok()) {
    std::puts(communicator.status().ToString().c_str());
    return 1;
  }
  std::vector<float> values(1000, 1.0F);
  const ringpipe::Status status =
      (*communicator)
          ->AllReduce(values.data(), values.data(), values.size(),
                      ringpipe::DataType::kFloat32, ringpipe::ReduceOp::kSum);
  std::printf("%s %g\n", status.ToString().c_str(), values[999]);
  return status.ok() ? 0 : 1;
}
