/* In place of libreseat.so: something that can be preloaded, and offers one entry point. */

int clGetPlatformIDs(unsigned count, void **platforms, unsigned *ret_count);

int clGetPlatformIDs(unsigned count, void **platforms, unsigned *ret_count)
{
    (void)count;
    (void)platforms;
    if (ret_count)
        *ret_count = 0;
    return 0;
}
