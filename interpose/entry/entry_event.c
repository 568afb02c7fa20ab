#include "state/command/event.h"

#include "interpose/entry/entry.h"
#include "state/command/command.h"
#include "state/opencl/checks.h"

cl_int clWaitForEvents(cl_uint num_events, const cl_event *event_list)
{
    cl_int error = check_awaited(num_events, event_list, event_context_of);
    /* The handles are the events' addresses. */
    return error ? error : event_wait(num_events, (struct event *const *)event_list);
}

cl_int event_create_user(struct context *context, struct event **ret_event)
{
    struct event *event = event_create(context, NULL, CL_COMMAND_USER);
    if (!event)
        return CL_OUT_OF_HOST_MEMORY;
    object_publish(event);
    *ret_event = event;
    return CL_SUCCESS;
}

cl_uint event_refs(const struct event *event)
{
    /* While a callback runs for an event that the program has released, the library has the only
     * reference. */
    cl_uint refs = object_refs(event) - atomic_load(&event->callback_refs);
    return refs ? refs : 1;
}

cl_int clGetEventProfilingInfo(cl_event event, cl_profiling_info param_name,
                               size_t param_value_size, void *param_value,
                               size_t *param_value_size_ret)
{
    const struct info_request request = {param_value_size, param_value, param_value_size_ret};
    struct event *e = event_get(event);
    if (!e)
        return CL_INVALID_EVENT;
    cl_ulong time;
    cl_int error = event_profiling(e, param_name, &time);
    return error == CL_SUCCESS ? info_ulong(&request, time) : error;
}
