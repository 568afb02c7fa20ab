#include <stdio.h>
#include <string.h>

#include "deviceinfo.h"

/* Finding devices and making contexts, with all that the specification refuses (4.2, 4.4). */

static void CL_CALLBACK heard(const char *what, const void *info, size_t size, void *data)
{
    (void)what, (void)info, (void)size, (void)data;
}

static cl_int made(const cl_context_properties *properties, cl_uint count,
                   const cl_device_id *devices, void *data)
{
    cl_int error = 1;
    cl_context context = clCreateContext(properties, count, devices, NULL, data, &error);

    CHECK((context != NULL) == (error == CL_SUCCESS));
    if (context)
        CHECK(clReleaseContext(context) == CL_SUCCESS);
    return error;
}

static cl_int made_of(const cl_context_properties *properties, cl_device_type type, void *data)
{
    cl_int error = 1;
    cl_context context = clCreateContextFromType(properties, type, NULL, data, &error);

    CHECK((context != NULL) == (error == CL_SUCCESS));
    if (context)
        CHECK(clReleaseContext(context) == CL_SUCCESS);
    return error;
}

static void check_properties(void)
{
    const cl_context_properties platform = (cl_context_properties)facts.platform;
    const cl_context_properties none[] = {CL_CONTEXT_PLATFORM, 0, 0};
    const cl_context_properties unknown[] = {CL_CONTEXT_PLATFORM, platform, 0x7777, 0, 0};
    const cl_context_properties twice[] = {CL_CONTEXT_PLATFORM, platform, CL_CONTEXT_PLATFORM,
                                           platform, 0};
    const cl_context_properties sync[] = {CL_CONTEXT_INTEROP_USER_SYNC, CL_TRUE,
                                          CL_CONTEXT_PLATFORM, platform, 0};
    const cl_context_properties bad_sync[] = {CL_CONTEXT_PLATFORM, platform,
                                              CL_CONTEXT_INTEROP_USER_SYNC, -1, 0};
    const cl_context_properties sync_twice[] = {CL_CONTEXT_PLATFORM,
                                                platform,
                                                CL_CONTEXT_INTEROP_USER_SYNC,
                                                CL_FALSE,
                                                CL_CONTEXT_INTEROP_USER_SYNC,
                                                CL_FALSE,
                                                0};
    const cl_context_properties empty[] = {0};
    const struct {
        const cl_context_properties *properties;
        cl_int error;
    } cases[] = {
        {NULL, CL_SUCCESS},
        {empty, CL_SUCCESS},
        {sync, CL_SUCCESS},
        {none, CL_INVALID_PLATFORM},
        {unknown, CL_INVALID_PROPERTY},
        {twice, CL_INVALID_PROPERTY},
        {bad_sync, CL_INVALID_PROPERTY},
        {sync_twice, CL_INVALID_PROPERTY},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].properties == bad_sync && !wanted("user-sync"))
            continue;
        CHECK_NAMED(made(cases[i].properties, 1, &facts.device, NULL) == cases[i].error,
                    "a case of context properties with its error", i);
        /* Without a platform it is for the implementation to say which is meant. */
        if (cases[i].error != CL_SUCCESS || cases[i].properties == sync)
            CHECK_NAMED(made_of(cases[i].properties, CL_DEVICE_TYPE_ALL, NULL) == cases[i].error,
                        "a case of context properties with its error, by type", i);
    }
}

static void check_creation(void)
{
    cl_device_id both[] = {facts.device, NULL}, same[] = {facts.device, facts.device};
    int data = 0;
    cl_int error = 1;
    cl_context context;
    cl_uint count = 0;

    check_properties();
    CHECK(made(NULL, 1, NULL, NULL) == CL_INVALID_VALUE);
    CHECK(made(NULL, 0, &facts.device, NULL) == CL_INVALID_VALUE);
    CHECK(made(NULL, 1, &facts.device, &data) == CL_INVALID_VALUE);
    CHECK(made(NULL, 2, both, NULL) == CL_INVALID_DEVICE);
    if (wanted("no-type"))
        CHECK(made_of(NULL, 0, NULL) == CL_INVALID_DEVICE_TYPE);
    CHECK(made_of(NULL, CL_DEVICE_TYPE_ALL, &data) == CL_INVALID_VALUE);
    CHECK(clCreateContext(NULL, 0, NULL, NULL, NULL, NULL) == NULL);
    if (!wanted("same-device"))
        return;
    /* 4.4: a device that is named twice is there once. */
    context = clCreateContext(NULL, 2, same, heard, &data, &error);
    CHECK(context && error == CL_SUCCESS);
    if (context)
        CHECK(clGetContextInfo(context, CL_CONTEXT_NUM_DEVICES, sizeof(count), &count, NULL) ==
                  CL_SUCCESS &&
              count == 1);
    clReleaseContext(context);
}

static void check_context_info(void)
{
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)facts.platform, 0};
    cl_context_properties told[8] = {0};
    cl_device_id devices[4] = {0};
    cl_uint number = 0;
    cl_int error = 1;
    size_t size = 9;
    cl_context context = clCreateContext(properties, 1, &facts.device, NULL, NULL, &error);

    CHECK(context && error == CL_SUCCESS);
    CHECK(clGetContextInfo(context, CL_CONTEXT_PROPERTIES, sizeof(told), told, &size) ==
              CL_SUCCESS &&
          size == sizeof(properties) && memcmp(told, properties, sizeof(properties)) == 0);
    CHECK(clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof(devices), devices, &size) ==
              CL_SUCCESS &&
          size == sizeof(devices[0]) && devices[0] == facts.device);
    CHECK(clGetContextInfo(context, CL_CONTEXT_NUM_DEVICES, sizeof(number), &number, &size) ==
              CL_SUCCESS &&
          size == sizeof(number) && number == 1);
    CHECK(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof(number), &number, NULL) ==
              CL_SUCCESS &&
          number == 1);
    CHECK(clRetainContext(context) == CL_SUCCESS);
    CHECK(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof(number), &number, NULL) ==
              CL_SUCCESS &&
          number == 2);
    CHECK(clReleaseContext(context) == CL_SUCCESS);
    CHECK(clGetContextInfo(context, CL_CONTEXT_NUM_DEVICES, 3, &number, NULL) == CL_INVALID_VALUE);
    CHECK(clGetContextInfo(context, 0, 0, NULL, NULL) == CL_INVALID_VALUE);
    CHECK(clGetContextInfo(NULL, CL_CONTEXT_NUM_DEVICES, 0, NULL, NULL) == CL_INVALID_CONTEXT);
    CHECK(clReleaseContext(context) == CL_SUCCESS);
    CHECK(clRetainContext(NULL) == CL_INVALID_CONTEXT);
    CHECK(clReleaseContext(NULL) == CL_INVALID_CONTEXT);

    context = clCreateContext(NULL, 1, &facts.device, NULL, NULL, &error);
    memset(told, 0xff, sizeof(told));
    CHECK(clGetContextInfo(context, CL_CONTEXT_PROPERTIES, sizeof(told), told, &size) ==
              CL_SUCCESS &&
          (size == 0 || (size == sizeof(told[0]) && told[0] == 0)));
    clReleaseContext(context);
}

static void check_device_ids(void)
{
    static const cl_device_type kinds[] = {CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU,
                                           CL_DEVICE_TYPE_ACCELERATOR, CL_DEVICE_TYPE_CUSTOM};
    cl_device_type type = number64(CL_DEVICE_TYPE);
    cl_device_id device = NULL;
    cl_platform_id platform = NULL;
    cl_uint count = 0, all = 0;
    size_t size = 0;

    CHECK(clGetDeviceInfo(facts.device, CL_DEVICE_PLATFORM, sizeof(platform), &platform, &size) ==
              CL_SUCCESS &&
          size == sizeof(platform) && platform == facts.platform);
    CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &all) == CL_SUCCESS && all >= 1);
    CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_DEFAULT, 0, NULL, &count) == CL_SUCCESS &&
          count == 1);
    CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) == CL_SUCCESS && device);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        cl_int error = clGetDeviceIDs(platform, kinds[i], 1, &device, &count);

        CHECK(error == CL_SUCCESS || error == CL_DEVICE_NOT_FOUND);
        CHECK(!(type & kinds[i]) || error == CL_SUCCESS);
    }
    if (wanted("no-type"))
        CHECK(clGetDeviceIDs(platform, 0, 1, &device, NULL) == CL_INVALID_DEVICE_TYPE);
    CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_DEFAULT, 0, &device, NULL) == CL_INVALID_VALUE);
    CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_DEFAULT, 1, NULL, NULL) == CL_INVALID_VALUE);
    CHECK(clRetainDevice(facts.device) == CL_SUCCESS);
    CHECK(clReleaseDevice(facts.device) == CL_SUCCESS);
    CHECK(clRetainDevice(NULL) == CL_INVALID_DEVICE);
    CHECK(clReleaseDevice(NULL) == CL_INVALID_DEVICE);
}

void check_contexts(void)
{
    check_device_ids();
    check_creation();
    check_context_info();
}
