#include "state/driver/driver.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/bytes/text.h"
#include "state/base/cleanup.h"
#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/work.h"
#include "state/driver/icd.h"
#include "state/driver/locked.h"
#include "state/driver/rebind.h"
#include "state/driver/served.h"

#define PLATFORMS_MAX 64  /* Of one driver. */
#define DEVICES_MAX   256 /* Of one platform. */

/* Vendors' own queries, offered with cl_nv_device_attribute_query; the headers lack them. */
#define NV_PCI_BUS    0x4008
#define NV_PCI_SLOT   0x4009
#define NV_PCI_DOMAIN 0x400A

static_assert(ICD_NAME_SIZE == sizeof(((struct device_key *)0)->icd), "names are never cut");

/* One driver library, or a session with a device server. Never removed or closed: drivers do not
   survive dlclose. */
struct driver {
    struct driver *next;           /* Guarded by drivers_lock. */
    bool over;                     /* Guarded by drivers_lock: another session follows. */
    char icd[ICD_NAME_SIZE];       /* Constant. */
    atomic_bool stays;             /* A vendor's, and in this process for good. */
    _Atomic served_leave_fn leave; /* Of ours that a loader's configuration names; or NULL. */
    /*
     * Held while the driver starts up, so that a second caller waits for it. It orders nothing but
     * that: no other lock is taken under it.
     */
    pthread_mutex_t opening;
    struct device **devices; /* Guarded by opening, constant once set. */
    size_t count;            /* Guarded by opening, constant once devices is set. */
};

static pthread_mutex_t drivers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct driver *drivers; /* Guarded by drivers_lock. */

static pthread_once_t configured_once = PTHREAD_ONCE_INIT;
static struct icd_list configured; /* Constant once read. */

/* Names go to terminals and into JSON: safe, and no blanks at either end. */
static void driver_copy_name(char *ret_name, size_t size, const char *text)
{
    static const char blanks[] = " \t\r\n";
    size_t length;

    text += strspn(text, blanks);
    for (length = strlen(text); length && strchr(blanks, text[length - 1]);)
        length--;
    text_make_safe(ret_name, size, text, length);
    for (length = strlen(ret_name); length && ret_name[length - 1] == ' '; length--)
        ret_name[length - 1] = '\0'; /* where it was cut */
}

static int driver_platform_name(const cl_icd_dispatch *cl, cl_platform_id platform, char *ret_name,
                                size_t size)
{
    char CLEANUP(cleanup_free) *text = NULL;
    size_t length = 0;

    if (cl->clGetPlatformInfo(platform, CL_PLATFORM_NAME, 0, NULL, &length) ||
        length > DEVINFO_VALUE_MAX)
        return -EIO;
    text = calloc(1, length + 1);
    if (!text)
        return -ENOMEM;
    if (cl->clGetPlatformInfo(platform, CL_PLATFORM_NAME, length, text, NULL))
        return -EIO;
    driver_copy_name(ret_name, size, text);
    return 0;
}

static void driver_write_pci(struct device_key *key, uint32_t domain, uint32_t bus, uint32_t device,
                             uint32_t function)
{
    char text[64];
    int length = snprintf(text, sizeof(text), "%04x:%02x:%02x.%x", domain, bus, device, function);

    if (length > 0 && (size_t)length < sizeof(key->pci) && bus < 256 && device < 32 && function < 8)
        memcpy(key->pci, text, (size_t)length + 1);
}

static bool driver_query_uint(const struct device *device, cl_device_info name, cl_uint *ret_value)
{
    return device->cl->clGetDeviceInfo(device->id, name, sizeof(*ret_value), ret_value, NULL) ==
           CL_SUCCESS;
}

static void driver_find_pci(struct device *device)
{
    const struct devinfo_value *value = devinfo_find(&device->info, CL_DEVICE_PCI_BUS_INFO_KHR);
    cl_device_pci_bus_info_khr pci;
    cl_device_topology_amd amd;
    cl_uint bus, slot, domain = 0;

    if (value && value->size == sizeof(pci)) {
        memcpy(&pci, value->bytes, sizeof(pci));
        driver_write_pci(&device->key, pci.pci_domain, pci.pci_bus, pci.pci_device,
                         pci.pci_function);
    } else if (devinfo_has_extension(&device->info, "cl_nv_device_attribute_query")) {
        if (!driver_query_uint(device, NV_PCI_BUS, &bus) ||
            !driver_query_uint(device, NV_PCI_SLOT, &slot))
            return;
        if (!driver_query_uint(device, NV_PCI_DOMAIN, &domain))
            domain = 0;
        driver_write_pci(&device->key, domain, bus, slot >> 3, slot & 7);
    } else if (devinfo_has_extension(&device->info, "cl_amd_device_attribute_query")) {
        if (device->cl->clGetDeviceInfo(device->id, CL_DEVICE_TOPOLOGY_AMD, sizeof(amd), &amd,
                                        NULL) == CL_SUCCESS &&
            amd.raw.type == CL_DEVICE_TOPOLOGY_TYPE_PCIE_AMD)
            driver_write_pci(&device->key, 0, (uint8_t)amd.pcie.bus, (uint8_t)amd.pcie.device,
                             (uint8_t)amd.pcie.function);
    }
}

static void driver_find_uuid(struct device *device)
{
    const struct devinfo_value *value = devinfo_find(&device->info, CL_DEVICE_UUID_KHR);
    bool zero = true;

    if (!value || value->size != CL_UUID_SIZE_KHR)
        return;
    for (size_t i = 0; i < CL_UUID_SIZE_KHR; i++)
        zero = zero && !value->bytes[i];
    for (size_t i = 0; !zero && i < CL_UUID_SIZE_KHR; i++)
        snprintf(device->key.uuid + 2 * i, 3, "%02x", value->bytes[i]);
}

static int driver_device_create(const struct driver *driver, cl_platform_id platform,
                                const char *name, cl_device_id id, struct device **ret_device)
{
    struct device *device = calloc(1, sizeof(*device));
    int err;

    if (!device)
        return -ENOMEM;
    device->cl = *(const cl_icd_dispatch **)platform;
    device->platform = platform;
    device->id = id;
    err = devinfo_query(device->cl, id, &device->info);
    if (err) {
        free(device);
        return err;
    }
    memcpy(device->key.icd, driver->icd, sizeof(driver->icd));
    snprintf(device->key.platform, sizeof(device->key.platform), "%s", name);
    device->quirks = quirks_of(device->key.platform);
    if (device->quirks & QUIRK_NO_LOCKS)
        device->cl = locked_calls(device->cl);
    if (device->cl->clGetExtensionFunctionAddressForPlatform) {
        device->between = (between_function)device->cl->clGetExtensionFunctionAddressForPlatform(
            platform, BETWEEN_NAME);
        device->lend = (lend_function)device->cl->clGetExtensionFunctionAddressForPlatform(
            platform, LEND_NAME);
        device->lent_return =
            (lent_return_function)device->cl->clGetExtensionFunctionAddressForPlatform(
                platform, LENT_RETURN_NAME);
    }
    driver_copy_name(device->key.device, sizeof(device->key.device),
                     devinfo_string(&device->info, CL_DEVICE_NAME));
    driver_find_uuid(device);
    driver_find_pci(device);
    reach_read(&device->reach);
    *ret_device = device;
    return 0;
}

static void driver_devices_destroy(struct device **devices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        devinfo_finish(&devices[i]->info);
        free(devices[i]);
    }
    free(devices);
}

/* Devices of one platform are appended to *devices, which has room for DEVICES_MAX more. */
static int driver_list_platform(const struct driver *driver, cl_platform_id platform,
                                struct device **devices, size_t *count)
{
    const cl_icd_dispatch *cl = platform ? *(const cl_icd_dispatch **)platform : NULL;
    cl_device_id ids[DEVICES_MAX];
    char name[sizeof(devices[0]->key.platform)];
    cl_uint found = 0;
    cl_int status;
    int err;

    if (!cl || !cl->clGetPlatformInfo || !cl->clGetDeviceIDs || !cl->clGetDeviceInfo)
        return -EIO;
    err = driver_platform_name(cl, platform, name, sizeof(name));
    if (err)
        return err;
    status = cl->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, DEVICES_MAX, ids, &found);
    if (status == CL_DEVICE_NOT_FOUND)
        return 0;
    if (status)
        return -EIO;
    for (cl_uint i = 0; i < found && i < DEVICES_MAX; i++) {
        err = driver_device_create(driver, platform, name, ids[i], &devices[*count]);
        if (err == -ENOMEM)
            return err;
        if (err)
            log_warn("a device of %s (%s) skipped: it does not answer", name, driver->icd);
        else
            ++*count;
    }
    return 0;
}

static bool driver_same_names(const struct device_key *a, const struct device_key *b)
{
    return !strcmp(a->icd, b->icd) && !strcmp(a->platform, b->platform) &&
           !strcmp(a->device, b->device);
}

/*
 * Number devices of equal names. What two of them share (a UUID that stands for the driver, the
 * PCI address of one card's parts) tells nothing apart, so it leaves the keys.
 */
static void driver_tell_apart(struct device **devices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct device_key *key = &devices[i]->key;
        bool uuid_shared = false, pci_shared = false;

        for (size_t j = i + 1; j < count; j++) {
            struct device_key *other = &devices[j]->key;
            bool uuid_same, pci_same;

            if (!driver_same_names(key, other))
                continue;
            other->ordinal = key->ordinal + 1;
            uuid_same = key->uuid[0] && !strcmp(key->uuid, other->uuid);
            pci_same = key->pci[0] && !strcmp(key->pci, other->pci) &&
                       (uuid_same || !key->uuid[0] || !other->uuid[0]);
            if (uuid_same)
                other->uuid[0] = '\0';
            if (pci_same)
                other->pci[0] = '\0';
            uuid_shared = uuid_shared || uuid_same;
            pci_shared = pci_shared || pci_same;
        }
        if (uuid_shared)
            key->uuid[0] = '\0';
        if (pci_shared)
            key->pci[0] = '\0';
    }
}

static int driver_list_devices(const struct driver *driver, const cl_platform_id *platforms,
                               cl_uint platform_count, struct device ***ret_devices,
                               size_t *ret_count)
{
    struct device **devices = NULL;
    size_t count = 0;

    for (cl_uint i = 0; i < platform_count; i++) {
        struct device **grown = realloc(devices, (count + DEVICES_MAX) * sizeof(*grown));
        int err = grown ? 0 : -ENOMEM;

        if (!err) {
            devices = grown;
            err = driver_list_platform(driver, platforms[i], devices, &count);
        }
        if (err == -ENOMEM) {
            driver_devices_destroy(devices, count);
            return err;
        }
        if (err)
            log_warn("a platform of %s skipped: it does not answer", driver->icd);
    }
    if (!count) {
        free(devices);
        return -ENOENT;
    }
    driver_tell_apart(devices, count);
    *ret_devices = devices;
    *ret_count = count;
    return 0;
}

/* A driver's extension function, or NULL. */
static void *driver_find_function(void *handle, const char *name)
{
    void *(CL_API_CALL * address)(const char *);

    *(void **)&address = dlsym(handle, "clGetExtensionFunctionAddress");
    return address ? address(name) : NULL;
}

static int driver_library_platforms(struct driver *driver, cl_platform_id *ret_platforms,
                                    cl_uint *ret_count)
{
    const char *icd = driver->icd;
    clIcdGetPlatformIDsKHR_fn entry;
    served_leave_fn leave;
    void *handle;
    cl_int status;

    if (icd_is_ours(icd))
        return -ENOENT;
    handle = dlopen(icd, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        log_warn("driver %s not used: %s", icd, dlerror());
        return -ENOENT;
    }
    if (dlsym(handle, DRIVER_OWN_MARKER)) { /* This library, under another name. */
        dlclose(handle);
        return -ENOENT;
    }
    rebind_own_calls(handle);
    /* The one way in that every driver has (cl_khr_icd): by that function, or by its name. */
    *(void **)&entry = driver_find_function(handle, "clIcdGetPlatformIDsKHR");
    if (!entry)
        *(void **)&entry = dlsym(handle, "clIcdGetPlatformIDsKHR");
    if (!entry) {
        log_warn("driver %s not used: it has no clIcdGetPlatformIDsKHR", icd);
        dlclose(handle);
        return -ENOENT;
    }
    *(void **)&leave = driver_find_function(handle, SERVED_LEAVE);
    atomic_store(&driver->leave, leave);
    atomic_store(&driver->stays, !leave);
    status = entry(PLATFORMS_MAX, ret_platforms, ret_count);
    if (status || !*ret_count) {
        log_info("driver %s has no platform (%d)", icd, status);
        return -ENOENT;
    }
    if (*ret_count > PLATFORMS_MAX)
        *ret_count = PLATFORMS_MAX;
    return 0;
}

/* The caller holds driver->opening. */
static int driver_start(struct driver *driver)
{
    cl_platform_id platforms[PLATFORMS_MAX];
    cl_uint count = 0;
    int err = served_is_address(driver->icd)
                  ? served_open(driver->icd, PLATFORMS_MAX, platforms, &count)
              : isolated_is_on() ? isolated_open(driver->icd, PLATFORMS_MAX, platforms, &count)
                                 : driver_library_platforms(driver, platforms, &count);

    if (err)
        return err;
    err = driver_list_devices(driver, platforms, count, &driver->devices, &driver->count);
    work_arm(); /* to run before what the driver has for the end of the process */
    return err;
}

static int driver_find(const char *icd, struct driver **ret_driver)
{
    struct driver *driver, *fresh = calloc(1, sizeof(*fresh));

    if (!fresh)
        return -ENOMEM;
    pthread_mutex_init(&fresh->opening, NULL);
    snprintf(fresh->icd, sizeof(fresh->icd), "%s", icd);

    pthread_mutex_lock(&drivers_lock);
    for (driver = drivers; driver; driver = driver->next)
        if (!driver->over && !strcmp(driver->icd, icd))
            break;
    if (!driver) {
        fresh->next = drivers;
        drivers = driver = fresh;
        fresh = NULL;
    }
    pthread_mutex_unlock(&drivers_lock);

    if (fresh) {
        pthread_mutex_destroy(&fresh->opening);
        free(fresh);
    }
    *ret_driver = driver;
    return 0;
}

/* The session that its devices are of has ended: they are lost for good, and the server, which may
   be back, has others. The caller holds driver->opening. */
static bool driver_is_over(const struct driver *driver)
{
    return served_is_address(driver->icd) && served_ended(driver->devices[0]->platform);
}

/* A driver that had no device is asked again the next time: one may have been plugged in. */
static int driver_open(const char *icd, struct driver **ret_driver)
{
    struct driver *driver = NULL;
    bool over = true;
    int err = 0;

    for (int tries = 0; !err && over && tries < 2; tries++) {
        err = driver_find(icd, &driver);
        if (err)
            break;
        pthread_mutex_lock(&driver->opening);
        err = driver->devices ? 0 : driver_start(driver);
        over = !err && driver_is_over(driver);
        pthread_mutex_unlock(&driver->opening);
        pthread_mutex_lock(&drivers_lock);
        driver->over = over;
        pthread_mutex_unlock(&drivers_lock);
    }
    if (err || over)
        return err ? err : -ENOENT;
    *ret_driver = driver;
    return 0;
}

bool device_key_equal(const struct device_key *a, const struct device_key *b)
{
    bool uuids = a->uuid[0] && b->uuid[0];
    bool addresses = a->pci[0] && b->pci[0];

    if (!driver_same_names(a, b))
        return false;
    if (uuids && strcmp(a->uuid, b->uuid) != 0)
        return false;
    if (addresses && strcmp(a->pci, b->pci) != 0)
        return false;
    return uuids || addresses || a->ordinal == b->ordinal;
}

static void driver_read_configured(void)
{
    if (icd_list_read(&configured))
        log_warn("no memory for the list of drivers");
}

static bool driver_list_has(const struct icd_list *list, const char *icd)
{
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->libraries[i], icd))
            return true;
    return false;
}

/*
 * True for a driver that the user's own configuration names, now or when the first was opened (the
 * program may have cleared its environment): keys come from an agent and from files, which do not
 * decide what is loaded into the program.
 */
static bool driver_may_open(const char *icd)
{
    struct icd_list CLEANUP(icd_list_finish) now = {0};
    bool may;

    /* What is loaded for a server is ours, and believes no server by its address. */
    if (served_is_address(icd))
        return true;
    pthread_once(&configured_once, driver_read_configured);
    may = driver_list_has(&configured, icd) || (!icd_list_read(&now) && driver_list_has(&now, icd));
    if (!may)
        log_warn("driver %s not used: no OpenCL configuration of this user names it", icd);
    return may;
}

void device_call(struct device *device, const char *name)
{
    const char *none = NULL;
    char *copy = name[0] && !atomic_load(&device->name) ? strdup(name) : NULL;
    if (copy && !atomic_compare_exchange_strong(&device->name, &none, copy))
        free(copy);
}

int driver_open_device(const struct device_key *key, struct device **ret_device)
{
    struct driver *driver = NULL;
    int err = driver_may_open(key->icd) ? driver_open(key->icd, &driver) : -ENOENT;

    if (err)
        return err;
    for (size_t i = 0; i < driver->count; i++) {
        if (device_key_equal(key, &driver->devices[i]->key)) {
            *ret_device = driver->devices[i];
            return 0;
        }
    }
    log_warn("driver %s has no device \"%s\" (%s) now", key->icd, key->device,
             key->uuid[0] ? key->uuid : key->pci);
    return -ENOENT;
}

int driver_list_library(const char *icd, struct device ***ret_devices, size_t *ret_count)
{
    struct driver *driver = NULL;
    struct device **devices;
    int err;

    if (strlen(icd) >= ICD_NAME_SIZE)
        return -ENOENT;
    err = driver_open(icd, &driver);
    if (err)
        return err;
    devices = malloc(driver->count * sizeof(struct device *));
    if (!devices)
        return -ENOMEM;
    memcpy(devices, driver->devices, driver->count * sizeof(struct device *));
    *ret_devices = devices;
    *ret_count = driver->count;
    return 0;
}

int driver_list(struct device ***ret_devices, size_t *ret_count)
{
    struct icd_list CLEANUP(icd_list_finish) list = {0};
    struct device **devices = NULL;
    size_t count = 0;
    int err = icd_list_read(&list);

    for (size_t i = 0; !err && i < list.count; i++) {
        struct device **CLEANUP(cleanup_free) some = NULL;
        struct device **grown;
        size_t some_count = 0;

        err = driver_list_library(list.libraries[i], &some, &some_count);
        if (err && err != -ENOMEM)
            err = 0;
        if (err || !some_count)
            continue;
        grown = realloc(devices, (count + some_count) * sizeof(*grown));
        if (!grown) {
            err = -ENOMEM;
            break;
        }
        devices = grown;
        memcpy(devices + count, some, some_count * sizeof(struct device *));
        count += some_count;
    }
    if (err) {
        free(devices);
        return err;
    }
    *ret_devices = devices;
    *ret_count = count;
    return 0;
}

/* @ret_leave: what ends the sessions of ours that a loader's configuration names; or NULL. */
static int driver_may_leave_with(served_leave_fn *ret_leave, char *ret_reason, size_t size)
{
    const char *stays = NULL;

    *ret_leave = NULL;
    pthread_mutex_lock(&drivers_lock);
    for (const struct driver *driver = drivers; driver; driver = driver->next) {
        stays = atomic_load(&driver->stays) ? driver->icd : stays;
        *ret_leave = atomic_load(&driver->leave) ? atomic_load(&driver->leave) : *ret_leave;
    }
    pthread_mutex_unlock(&drivers_lock);
    if (!stays)
        return 0;
    (void)!snprintf(ret_reason, size,
                    "the driver %.200s is in the program's process, and stays there; start the "
                    "program with reseat run --isolate, which has drivers in another one",
                    stays);
    return -EPERM;
}

int driver_may_leave(char *ret_reason, size_t size)
{
    served_leave_fn leave;

    return driver_may_leave_with(&leave, ret_reason, size);
}

int driver_leave_all(char *ret_reason, size_t size)
{
    served_leave_fn leave;
    int error = driver_may_leave_with(&leave, ret_reason, size);

    if (error)
        return error;
    error = leave ? leave() : 0;
    if (!error)
        error = served_leave();
    if (error)
        (void)!snprintf(ret_reason, size, "the sessions with device servers do not end: %s",
                        strerror(-error));
    return error;
}

cl_version device_version(const struct device *device)
{
    return devinfo_version(&device->info);
}

/* What another thread was opening is begun anew by who needs it. */
static void driver_in_child(void)
{
    for (struct driver *driver = drivers; driver; driver = driver->next)
        pthread_mutex_init(&driver->opening, NULL);
}

FORK_PART = {.rank = FORK_TABLE, .lock = &drivers_lock, .in_child = driver_in_child};
