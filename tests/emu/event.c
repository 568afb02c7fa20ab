#include <pthread.h>
#include <stdlib.h>

#include "emu_entries.h"
#include "tests/emu/object.h"

#define LATE_MS 20

#define LOST_STATUS                                                                                \
    CL_OUT_OF_RESOURCES /* the execution status of a command lost with its device                  \
                         */

cl_int emu_event_prepare(struct emu_device *device, const cl_event *event, const void *parent,
                         struct emu_object **ret_made)
{
    if (event == NULL)
        return CL_SUCCESS;
    struct emu_object *made = emu_object_new(EMU_EVENT, device, emu_object_of(parent));
    if (made == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    ((struct emu_event *)made)->fails = emu_call_fails_at_end();
    ((struct emu_event *)made)->lasted_ns = emu_call_lasts_ns();
    *ret_made = made;
    return CL_SUCCESS;
}

void emu_event_publish(struct emu_object *made, cl_event real, cl_int err, cl_event *event)
{
    if (made == NULL)
        return;
    made->real = real;
    cl_event handle = emu_object_publish(made, &err);
    if (handle != NULL)
        *event = handle;
}

static bool is_user_event(const struct emu_event *event)
{
    return event->object.parent->kind != EMU_QUEUE;
}

bool emu_event_lost(struct emu_event *event)
{
    return !is_user_event(event) && !atomic_load(&event->done) &&
           atomic_load(&event->object.device->shared->losses) != event->losses;
}

/* Of a device that says how a command fares only once somebody has waited for that very command. */
static bool late_to_say(struct emu_event *event)
{
    return event->object.device->config.late_status && !is_user_event(event) &&
           !atomic_load(&event->awaited);
}

cl_int emu_do_clGetEventInfo(struct emu_device *device, cl_event handle, cl_event_info param_name,
                             size_t param_value_size, void *param_value,
                             size_t *param_value_size_ret)
{
    struct emu_event *event = (struct emu_event *)handle;
    struct emu_object *object = &event->object;
    cl_int status;
    switch (param_name) {
    case CL_EVENT_COMMAND_QUEUE:
        return emu_info_handle(is_user_event(event) ? NULL : object->parent, param_value_size,
                               param_value, param_value_size_ret);
    case CL_EVENT_CONTEXT:
        return emu_info_handle(object->context, param_value_size, param_value,
                               param_value_size_ret);
    case CL_EVENT_REFERENCE_COUNT:
        return emu_info_refs(object, param_value_size, param_value, param_value_size_ret);
    case CL_EVENT_COMMAND_EXECUTION_STATUS:
        if (emu_event_lost(event)) {
            status = device->config.lost_hangs ? CL_SUBMITTED : LOST_STATUS;
        } else {
            cl_int err =
                emu_driver->clGetEventInfo(object->real, param_name, sizeof(status), &status, NULL);
            if (err != CL_SUCCESS)
                return err;
            if (status == CL_COMPLETE && late_to_say(event))
                status = CL_SUBMITTED;
            else if (status == CL_COMPLETE && event->fails)
                status = CL_OUT_OF_RESOURCES;
            else if (status == CL_COMPLETE)
                atomic_store(&event->done, true);
        }
        return emu_info(&status, sizeof(status), param_value_size, param_value,
                        param_value_size_ret);
    default:
        return emu_driver->clGetEventInfo(object->real, param_name, param_value_size, param_value,
                                          param_value_size_ret);
    }
}

/* For the driver it is submitted, and begins, when its time is over; and who enqueued it may have
 * been kept from giving it to the driver for some of that time. */
static cl_int time_of(struct emu_event *event, cl_profiling_info name, size_t size, void *value,
                      size_t *ret_size)
{
    cl_event real = event->object.real;
    cl_ulong end = 0, queued = 0;
    cl_int err = emu_driver->clGetEventProfilingInfo(real, CL_PROFILING_COMMAND_END, sizeof(end),
                                                     &end, NULL);
    if (err == CL_SUCCESS)
        err = emu_driver->clGetEventProfilingInfo(real, CL_PROFILING_COMMAND_QUEUED, sizeof(queued),
                                                  &queued, NULL);
    cl_ulong start = end - event->lasted_ns;
    if (queued > start)
        queued = start;
    return err != CL_SUCCESS ? err
                             : emu_info(name == CL_PROFILING_COMMAND_START ? &start : &queued,
                                        sizeof(start), size, value, ret_size);
}

cl_int emu_do_clGetEventProfilingInfo(struct emu_device *device, cl_event handle,
                                      cl_profiling_info param_name, size_t param_value_size,
                                      void *param_value, size_t *param_value_size_ret)
{
    struct emu_event *event = (struct emu_event *)handle;
    const cl_ulong none = 0;
    cl_command_type type = 0;
    if (late_to_say(event))
        return CL_PROFILING_INFO_NOT_AVAILABLE;
    cl_int err = emu_driver->clGetEventProfilingInfo(
        event->object.real, param_name, param_value_size, param_value, param_value_size_ret);
    if (device->config.no_barrier_times)
        (void)emu_driver->clGetEventInfo(event->object.real, CL_EVENT_COMMAND_TYPE, sizeof(type),
                                         &type, NULL);
    if (err != CL_SUCCESS)
        return err;
    bool earlier = param_name == CL_PROFILING_COMMAND_QUEUED ||
                   param_name == CL_PROFILING_COMMAND_SUBMIT ||
                   param_name == CL_PROFILING_COMMAND_START;
    if (earlier && event->lasted_ns != 0 && !device->config.no_times)
        return time_of(event, param_name, param_value_size, param_value, param_value_size_ret);
    if (!device->config.no_times && type != CL_COMMAND_BARRIER)
        return CL_SUCCESS;
    return emu_info(&none, sizeof(none), param_value_size, param_value, param_value_size_ret);
}

cl_int emu_do_clWaitForEvents(struct emu_device *device, cl_uint num_events,
                              const cl_event *event_list)
{
    struct emu_list list CLEANUP(emu_list_finish);
    cl_int err = emu_list_init(&list, num_events, event_list, EMU_EVENT);
    if (err != CL_SUCCESS)
        return err == CL_INVALID_EVENT_WAIT_LIST ? CL_INVALID_EVENT : err;
    cl_int waited =
        emu_driver->clWaitForEvents(num_events, (const cl_event *)(const void *)list.real);
    for (cl_uint i = 0; i < num_events; i++) {
        struct emu_event *event = (struct emu_event *)event_list[i];
        if (emu_event_lost(event) && device->config.lost_hangs)
            emu_hang();
        if (emu_event_lost(event))
            err = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        else if (event->fails)
            err = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        else if (waited == CL_SUCCESS)
            atomic_store(&event->done, true);
        atomic_store(&event->awaited, true);
    }
    return err != CL_SUCCESS ? err : waited;
}

/** A callback under way; it holds its event. */
struct event_notice {
    struct event_notice *next;
    struct emu_event *event;
    cl_int type;
    cl_int status; /* of one that comes late */
    void(CL_CALLBACK *function)(cl_event, cl_int, void *);
    void *data;
};

static pthread_mutex_t late_lock = PTHREAD_MUTEX_INITIALIZER;

static void call_late(struct event_notice *late)
{
    while (late) {
        struct event_notice *notice = late;
        late = notice->next;
        notice->function((cl_event)notice->event, notice->type, notice->data);
        emu_object_unhold(&notice->event->object);
        free(notice);
    }
}

/* Callbacks of a device that calls them backwards. */
static void keep_late(struct event_notice *notice)
{
    pthread_mutex_lock(&late_lock);
    bool ended = atomic_load(&notice->event->done);
    if (!ended) {
        notice->next = notice->event->late;
        notice->event->late = notice;
    }
    pthread_mutex_unlock(&late_lock);
    if (ended)
        call_late(notice);
}

static void notify(struct event_notice *notice, cl_int status)
{
    struct emu_event *event = notice->event;
    if (emu_event_lost(event) && event->object.device->config.lost_hangs) {
        free(notice); /* it is never called, and the event stays */
        return;
    }
    if (event->object.device->config.callbacks == EMU_CALLBACKS_COMPLETE)
        status = notice->type;
    else if (emu_event_lost(event))
        status = LOST_STATUS;
    else if (status == CL_COMPLETE && event->fails)
        status = CL_OUT_OF_RESOURCES;
    else if (status == CL_COMPLETE)
        atomic_store(&event->done, true);
    notice->function((cl_event)event, status, notice->data);
    pthread_mutex_lock(&late_lock);
    struct event_notice *late = notice->type == CL_COMPLETE ? event->late : NULL;
    if (late)
        event->late = NULL;
    pthread_mutex_unlock(&late_lock);
    call_late(late);
    free(notice);
    emu_object_unhold(&event->object);
}

static void *notify_late(void *data)
{
    struct event_notice *notice = data;
    emu_sleep_ms(LATE_MS);
    notify(notice, notice->status);
    return NULL;
}

static void CL_CALLBACK event_notify(cl_event real, cl_int status, void *data)
{
    struct event_notice *notice = data;
    pthread_t thread;
    (void)real;
    notice->status = status;
    if (notice->event->object.device->config.callbacks == EMU_CALLBACKS_LATE &&
        notice->type == CL_COMPLETE && pthread_create(&thread, NULL, notify_late, notice) == 0)
        pthread_detach(thread);
    else
        notify(notice, status);
}

cl_int emu_do_clSetEventCallback(struct emu_device *device, cl_event event,
                                 cl_int command_exec_callback_type,
                                 void(CL_CALLBACK *pfn_notify)(cl_event, cl_int, void *),
                                 void *user_data)
{
    if (pfn_notify == NULL)
        return CL_INVALID_VALUE;
    if (device->config.callbacks == EMU_CALLBACKS_NEVER)
        return CL_SUCCESS;
    struct event_notice *notice = malloc(sizeof(*notice));
    if (notice == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    notice->event = (struct emu_event *)event;
    notice->next = NULL;
    notice->type = command_exec_callback_type;
    notice->function = pfn_notify;
    notice->data = user_data;
    emu_object_hold(&notice->event->object);
    struct emu_object *held = &notice->event->object;
    if (device->config.callbacks == EMU_CALLBACKS_BACKWARDS &&
        command_exec_callback_type != CL_COMPLETE) {
        keep_late(notice);
        return CL_SUCCESS;
    }
    cl_int err = emu_driver->clSetEventCallback(held->real, command_exec_callback_type,
                                                event_notify, notice);
    if (err != CL_SUCCESS) {
        free(notice);
        emu_object_unhold(held);
    }
    return err;
}
