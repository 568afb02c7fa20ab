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

cl_event clCreateUserEvent(cl_context context, cl_int *errcode_ret)
{
    struct event *event = NULL;
    struct context *c = context_get(context);
    cl_int error = c ? CL_SUCCESS : CL_INVALID_CONTEXT;
    if (error == CL_SUCCESS) {
        event = event_create(c, NULL, CL_COMMAND_USER);
        if (event)
            object_publish(event);
        else
            error = CL_OUT_OF_HOST_MEMORY;
    }
    return created(event, error, errcode_ret);
}

cl_int clSetUserEventStatus(cl_event event, cl_int execution_status)
{
    struct event *e = event_get(event);
    return e ? event_set_user_status(e, execution_status) : CL_INVALID_EVENT;
}

cl_int clSetEventCallback(cl_event event, cl_int command_exec_callback_type,
                          void(CL_CALLBACK *pfn_notify)(cl_event, cl_int, void *), void *user_data)
{
    struct event *e = event_get(event);
    return e ? event_set_callback(e, command_exec_callback_type, pfn_notify, user_data)
             : CL_INVALID_EVENT;
}

cl_uint event_refs(const struct event *event)
{
    /* In a callback of an event that the program released, ours is the one reference. */
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
