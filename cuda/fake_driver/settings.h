#ifndef RINGPIPE_CUDA_FAKE_DRIVER_SETTINGS_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_SETTINGS_H_

#include <string>

namespace fake_cuda {

// The environment variables of control.h.
struct Settings {
  static const Settings& Get();

  int devices;
  int queues;
  unsigned seed;
  long delay_us;
  bool strict;
  bool lazy;
  bool same_pointers;
  int compute_mode;
  std::string fail;
};

}  // namespace fake_cuda

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_SETTINGS_H_
