#include "verbs/soft/soft_library.h"

#include "verbs/soft/verbs_functions.h"

namespace ringpipe::verbs::soft {
namespace {

// A library and what it lists.
struct SoftLibrary {
  SoftDevice device;
  Library library;
};

}  // namespace

std::shared_ptr<const Library> CreateSoftLibrary(const Options& options,
                                                 const Logger& logger) {
  auto soft = std::make_shared<SoftLibrary>();
  soft->device.options = options;
  soft->device.logger = logger;
  soft->library = {
      .get_device_list =
          [device = &soft->device](int* count) {
            return MakeDeviceList(device, count);
          },
      .free_device_list = FreeDeviceList,
      .get_device_name = GetDeviceName,
      .open_device = OpenDevice,
      .close_device = CloseDevice,
      .query_device = QueryDevice,
      .query_port = QueryPort,
      .query_gid = QueryGid,
      .alloc_pd = AllocPd,
      .dealloc_pd = DeallocPd,
      .reg_mr = RegMr,
      .dereg_mr = DeregMr,
      .create_comp_channel = CreateCompChannel,
      .destroy_comp_channel = DestroyCompChannel,
      .get_cq_event = GetCqEvent,
      .ack_cq_events = AckCqEvents,
      .create_cq = CreateCq,
      .destroy_cq = DestroyCq,
      .create_qp = CreateQp,
      .modify_qp = ModifyQp,
      .query_qp = QueryQp,
      .destroy_qp = DestroyQp,
      .get_async_event = GetAsyncEvent,
      .ack_async_event = AckAsyncEvent,
      .allocate = Allocate,
      .free = Free,
      .describe_loss = DescribeLoss,
  };
  return {soft, &soft->library};
}

}  // namespace ringpipe::verbs::soft
