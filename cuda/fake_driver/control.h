// How a test steers the fake driver, and looks into it.
//
// Environment variables, read when the library is loaded:
//
// clang-format off
//   FAKE_CUDA_DEVICES        how many devices (2); 0: cuInit says
//                            CUDA_ERROR_NO_DEVICE
//   FAKE_CUDA_QUEUES         in-order queues that the streams of a device share
//                            (8)
//   FAKE_CUDA_SEED           of the delays (1)
//   FAKE_CUDA_DELAY_US       the longest delay, of which each operation has
//                            three (20)
//   FAKE_CUDA_STRICT         1: cuPointerGetAttributes wants a current context
//                            (1)
//   FAKE_CUDA_LAZY           1: a kernel's first launch waits for the device (1)
//   FAKE_CUDA_SAME_POINTERS  1: the device sees registered host memory at the
//                            host's address (0: at another one, as some systems
//                            do)
//   FAKE_CUDA_COMPUTE_MODE   what all devices say of their compute mode (0; 2:
//                            prohibited, 3: exclusive); nothing follows from it
//   FAKE_CUDA_FAIL           errors on demand: NAME:NTH:ERROR,...; the NTH call
//                            of entry point NAME from now on (1: the next), and
//                            none after it, returns ERROR; with NTH 0, every
//                            call. ERROR -1: it never returns; -2: it ends the
//                            process by SIGSEGV
// clang-format on
//
// The functions below are for a test that has loaded the library; it finds them
// by dlsym (fake_cuda::Control, in control_client.h). Thread-safe.
#ifndef RINGPIPE_CUDA_FAKE_DRIVER_CONTROL_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_CONTROL_H_

#define FAKE_CUDA_CONTROLS(F)                                                 \
  /* As an entry of FAKE_CUDA_FAIL. An error that ends the context (700, ...) \
     is sticky, as if the device had found it. 0 if there is no such entry    \
     point. */                                                                \
  F(int, fake_cuda_fail, (const char* name, int nth, int error))              \
  /* How often that entry point was called. -1: there is none. */             \
  F(long, fake_cuda_calls, (const char* name))                                \
  /* The name of entry point i, from 0; nullptr after the last. */            \
  F(const char*, fake_cuda_entry_point, (int i))                              \
  /* A stuck device begins no operation and goes on with none. */             \
  F(void, fake_cuda_stick, (int device, int stuck))                           \
  /* Takes back what fake_cuda_fail demanded, sticky errors and sticking. */  \
  F(void, fake_cuda_reset, ())                                                \
  /* Operations that devices have not done. */                                \
  F(int, fake_cuda_pending, ())                                               \
  /* Live streams, events, registrations and allocations. */                  \
  F(int, fake_cuda_live, (const char* kind))

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_CONTROL_H_
