int clFinish(void *queue);

int main(void)
{
    return clFinish(0);
}
