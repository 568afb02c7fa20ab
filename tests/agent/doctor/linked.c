int clGetPlatformIDs(unsigned count, void **platforms, unsigned *ret_count);

int main(void)
{
    return clGetPlatformIDs(0, 0, 0);
}
